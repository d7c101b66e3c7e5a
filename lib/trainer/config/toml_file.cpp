// Reads TOML files. Only this file uses the TOML library.
#include <stdexcept>

// toml++ asserts properties that a malformed text does not have. A failed assertion would abort the process
// without a message.
#define TOML_ASSERT(condition) \
    static_cast<void>((condition) || (throw std::logic_error("a key or a value is malformed"), false))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wterminate"  // in functions that cannot throw, the assertion still aborts
#include <toml++/toml.h>
#pragma GCC diagnostic pop

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/content_kind.h"
#include "base/error.h"
#include "base/text.h"
#include "config/arrival.h"
#include "config/saved.h"
#include "config/schema.h"

namespace argosy::config {
namespace {

/// Returns the place behind the string that opens at `text[start]`; behind its line if it does not end there.
std::size_t end_of_string(std::string_view text, std::size_t start) {
    const char quote = text[start];
    const std::string three(3, quote);
    const bool many_lines = text.substr(start).starts_with(three);
    std::size_t at = start + (many_lines ? 3 : 1);
    for (; at < text.size(); ++at) {
        if (text[at] == '\\' && quote == '"') {
            ++at;
        } else if (many_lines ? text.substr(at).starts_with(three) : text[at] == quote || text[at] == '\n') {
            return std::min(text.find_first_not_of(quote, at + 1), text.size());
        }
    }
    return text.size();
}

/// Refuses a character outside of ASCII where TOML allows none: outside of strings and comments. toml++ 3.3
/// has undefined behaviour there.
void refuse_stray_characters(std::string_view text, const std::string& path) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    std::size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    while (at < text.size()) {
        if (text[at] == '#') {
            at = std::min(text.find('\n', at), text.size());
        } else if (text[at] == '"' || text[at] == '\'') {
            at = end_of_string(text, at);
        } else if (static_cast<unsigned char>(text[at]) < 0x80) {
            ++at;
        } else {
            const std::string_view before = text.substr(0, at);
            const std::string_view line = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
            const auto starts_character = [](char byte) { return (byte & 0xC0) != 0x80; };
            throw UserError("{}:{}:{} is not TOML: a character outside of ASCII needs quotes around it", path,
                            1 + std::ranges::count(before, '\n'),
                            1 + std::ranges::count_if(line, starts_character));
        }
    }
}

toml::table parsed_text(const std::string& text, const std::string& path) {
    refuse_stray_characters(text, path);
    try {
        return toml::parse(text, path);
    } catch (const toml::parse_error& error) {
        const auto& place = error.source().begin;
        throw UserError("{}:{}:{} is not TOML: {}", path, place.line, place.column, error.description());
    } catch (const std::logic_error& error) {
        throw UserError("{} is not TOML: {}", path, error.what());
    }
}

toml::table parsed(const std::string& path, std::string_view option) {
    return parsed_text(content_of(path, option), path);
}

template <class Element>
Value list_of(const toml::array& array) {
    std::vector<Element> list;
    for (const toml::node& element : array) list.push_back(element.ref<Element>());
    return list;
}

/// An unset value if a table has something else than numbers and texts.
Value rows_of(const toml::array& array) {
    std::vector<Row> rows;
    for (const toml::node& element : array) {
        Row& row = rows.emplace_back();
        for (const auto& [key, node] : *element.as_table()) {
            if (!node.is_string() && !node.is_number()) return {};
            if (node.is_string()) row[std::string(key.str())] = node.ref<std::string>();
            if (node.is_number()) row[std::string(key.str())] = *node.value<double>();
        }
    }
    return rows;
}

Value list_of(const toml::array& array) {
    if (array.empty() || array.is_homogeneous<int64_t>()) return list_of<int64_t>(array);
    if (array.is_homogeneous<toml::table>()) return rows_of(array);
    return array.is_homogeneous<std::string>() ? list_of<std::string>(array) : Value();
}

Value value_of(const toml::node& node) {
    if (node.is_boolean()) return node.ref<bool>();
    if (node.is_integer()) return node.ref<int64_t>();
    if (node.is_floating_point()) return node.ref<double>();
    if (node.is_string()) return node.ref<std::string>();
    return node.is_array() ? list_of(*node.as_array()) : Value();
}

constexpr const char* kOtherElements = "a list with elements of another type";

/// A list of tables in words if it is no value of the key, else nothing.
std::string words_of_rows(const std::string& key, const std::vector<Row>& rows) {
    const Field* field = find_field(key);
    if (field == nullptr || columns_of(field->type).empty()) return kOtherElements;
    std::vector<std::string> known;
    for (const Column& column : columns_of(field->type)) known.emplace_back(column.name);
    for (const Row& row : rows) {
        for (const auto& [name, cell] : row) {
            if (std::ranges::find(known, name) != known.end()) continue;
            const std::string meant = nearest(name, known);
            return fmt::format("a list with the unknown key {}{}", name,
                               meant.empty() ? "" : "; did you mean " + meant + "?");
        }
    }
    return is_set(value_as(field->type, rows)) ? "" : kOtherElements;
}

std::string in_words(const std::string& key, const toml::node& node) {
    const Value value = value_of(node);
    if (!is_set(value)) {
        return node.is_array() ? kOtherElements : node.is_table() ? "a table" : "a date or time";
    }
    if (const auto* rows = std::get_if<std::vector<Row>>(&value)) {
        if (const std::string words = words_of_rows(key, *rows); !words.empty()) return words;
    }
    const char* const kind = node.is_integer()          ? "the integer "
                             : node.is_floating_point() ? "the number "
                             : node.is_string()         ? "the string "
                             : node.is_array()          ? "the list "
                                                        : "";
    return kind + toml_text(value);
}

Setting setting(std::string key, const toml::node& node, const std::string& path) {
    const std::string words = in_words(key, node);
    return {std::move(key), value_of(node), words, fmt::format("in {}:{}", path, node.source().begin.line)};
}

/// REQUIRES: no section is called `name`, or `node` is no table.
[[noreturn]] void refuse_section(const std::string& name, const toml::node& node, const std::string& path) {
    const auto line = node.source().begin.line;
    if (find_section(name)) {
        throw UserError("{} in {}:{} is a section: write [{}] and its keys below", name, path, line, name);
    }
    const std::string meant = nearest(name, section_names());
    if (const std::string answer = foreign_answer(name); meant.empty() && !answer.empty())
        throw UserError("unknown section [{}] in {}:{}; {}", name, path, line, answer);
    throw UserError("unknown section [{}] in {}:{}; {}", name, path, line,
                    meant.empty() ? fmt::format("the sections are {}", fmt::join(section_names(), ", "))
                                  : fmt::format("did you mean [{}]?", meant));
}

/// Whether the name begins the names of sections, as "quantize" does.
bool has_subsections(const std::string& name) {
    return std::ranges::any_of(schema(),
                               [&](const Section& section) { return section.name.starts_with(name + "."); });
}

/// Adds the keys of `table`. `prefix` is empty, or the table's name and a dot.
void read_sections(const toml::table& table, const std::string& prefix, const std::string& path,
                   std::vector<Setting>& settings) {
    for (const auto& [table_key, node] : table) {
        const std::string name = prefix + std::string(table_key.str());
        if (!node.is_table() && !find_section(name)) {
            settings.push_back(setting(name, node, path));  // a key outside of its section
        } else if (node.is_table() && has_subsections(name)) {
            read_sections(*node.as_table(), name + ".", path, settings);
        } else if (!node.is_table() || !find_section(name)) {
            refuse_section(name, node, path);
        } else {
            for (const auto& [key, value] : *node.as_table()) {
                settings.push_back(setting(fmt::format("{}.{}", name, key.str()), value, path));
            }
        }
    }
}

/// Adds every key of the table and of the tables in it. `prefix` is empty, or the table's name and a dot.
void read_keys(const toml::table& table, const std::string& prefix, const std::string& path,
               std::vector<Setting>& settings) {
    for (const auto& [table_key, node] : table) {
        const std::string name = prefix + std::string(table_key.str());
        if (node.is_table()) {
            read_keys(*node.as_table(), name + ".", path, settings);
        } else {
            settings.push_back(setting(name, node, path));
        }
    }
}

}  // namespace

std::string content_of(const std::string& path, std::string_view option) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
        throw UserError("--{} {} is a folder, not a file", option, path);
    std::ifstream file(path);
    if (!file) throw UserError("cannot read --{} {}: {}", option, path, std::strerror(errno));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const std::string kind = kind_of_content(text);
    if (!kind.empty()) throw UserError("cannot read --{} {}: it is {}", option, path, kind);
    return text;
}

std::vector<Setting> read_toml(const std::string& path) {
    std::vector<Setting> settings;
    read_sections(parsed(path, "config"), "", path, settings);
    return settings;
}

JobConfig parse_toml(const std::string& text, const std::string& place) {
    JobConfig config;
    std::vector<Setting> settings;
    read_sections(parsed_text(text, place), "", place, settings);
    for (const Setting& setting : settings) apply(setting, config);
    return config;
}

std::vector<Setting> read_any_toml(const std::string& path, std::string_view option) {
    std::vector<Setting> settings;
    read_keys(parsed(path, option), "", path, settings);
    return settings;
}

}  // namespace argosy::config
