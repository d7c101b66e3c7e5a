#include "config/toml_file.h"

#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "config/nearest.h"
#include "config/schema.h"

namespace argosy::config {
namespace {

std::string content_of(const std::string& path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
        throw UserError("--config {} is a folder, not a file", path);
    std::ifstream file(path);
    if (!file) throw UserError("cannot read --config {}: {}", path, std::strerror(errno));
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
}

toml::table parsed(const std::string& path) {
    try {
        return toml::parse(content_of(path), path);
    } catch (const toml::parse_error& error) {
        const auto& place = error.source().begin;
        throw UserError("{}:{}:{} is not TOML: {}", path, place.line, place.column, error.description());
    }
}

template <class Element>
Value list_of(const toml::array& array) {
    std::vector<Element> list;
    for (const toml::node& element : array) list.push_back(element.ref<Element>());
    return list;
}

Value list_of(const toml::array& array) {
    if (array.empty() || array.is_homogeneous<int64_t>()) return list_of<int64_t>(array);
    return array.is_homogeneous<std::string>() ? list_of<std::string>(array) : Value();
}

Value value_of(const toml::node& node) {
    switch (node.type()) {
        case toml::node_type::boolean:
            return node.ref<bool>();
        case toml::node_type::integer:
            return node.ref<int64_t>();
        case toml::node_type::floating_point:
            return node.ref<double>();
        case toml::node_type::string:
            return node.ref<std::string>();
        case toml::node_type::array:
            return list_of(*node.as_array());
        default:
            return {};
    }
}

std::string in_words(const toml::node& node) {
    const Value value = value_of(node);
    switch (node.type()) {
        case toml::node_type::boolean:
            return toml_text(value);
        case toml::node_type::integer:
            return "the integer " + toml_text(value);
        case toml::node_type::floating_point:
            return "the number " + toml_text(value);
        case toml::node_type::string:
            return "the string " + toml_text(value);
        case toml::node_type::array:
            return is_set(value) ? "the list " + toml_text(value) : "an array of other things";
        case toml::node_type::table:
            return "a table";
        default:
            return "a date or time";
    }
}

Setting setting(std::string key, const toml::node& node, const std::string& path) {
    return {std::move(key), value_of(node), in_words(node),
            fmt::format("in {}:{}", path, node.source().begin.line)};
}

/// REQUIRES: no section is called `name`, or `node` is no table.
[[noreturn]] void refuse_section(const std::string& name, const toml::node& node, const std::string& path) {
    const auto line = node.source().begin.line;
    if (find_section(name)) {
        throw UserError("{} in {}:{} is a section: write [{}] and its keys below", name, path, line, name);
    }
    const std::string meant = nearest(name, section_names());
    throw UserError("unknown section [{}] in {}:{}; {}", name, path, line,
                    meant.empty() ? fmt::format("the sections are {}", fmt::join(section_names(), ", "))
                                  : fmt::format("did you mean [{}]?", meant));
}

}  // namespace

std::vector<Setting> read_toml(const std::string& path) {
    std::vector<Setting> settings;
    const toml::table file = parsed(path);
    for (const auto& [section_key, section] : file) {
        const std::string name(section_key.str());
        if (!section.is_table() && !find_section(name)) {
            settings.push_back(setting(name, section, path));  // a key outside of its section
            continue;
        }
        if (!section.is_table() || !find_section(name)) refuse_section(name, section, path);
        for (const auto& [key, node] : *section.as_table()) {
            settings.push_back(setting(fmt::format("{}.{}", name, key.str()), node, path));
        }
    }
    return settings;
}

}  // namespace argosy::config
