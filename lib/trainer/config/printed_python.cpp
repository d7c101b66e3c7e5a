// TorchTitan's configurations of Python (since February 2026) as it prints them: the JSON of
// --debug.save_config_file and --debug.print_config, and the text of `python -m torchtitan.config.manager`.
// Both are read by one grammar: objects, calls with named arguments, lists and scalars. rich breaks its lines
// at 80 columns, also inside of strings.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/strict_json.h"
#include "config/arrival.h"

namespace argosy::config {
namespace {

class PrintedReader {
  public:
    PrintedReader(const std::string& text, const std::string& path) : text_(text), path_(path) {}

    std::vector<Setting> read() {
        const std::size_t begin = begin_of_printed(text_);
        if (begin == std::string::npos) refuse("no configuration begins");
        at_ = begin;
        const bool is_json = text_[at_] == '{';
        read_value("", 0);
        const auto lists_converters = [](const Setting& setting) {
            return setting.key.starts_with("model_converters");
        };
        if (is_json && std::ranges::none_of(settings_, lists_converters))
            settings_.push_back({"(float8)", "unsaid", "unsaid", ""});
        return std::move(settings_);
    }

    /// Returns the start of the configuration. Other lines of a log may precede it.
    static std::size_t begin_of_printed(std::string_view text) {
        const std::size_t first = text.find_first_not_of(" \t\r\n");
        if (first != std::string_view::npos && text[first] == '{') return first;
        constexpr std::string_view kLogged = "configs: {";
        if (const std::size_t at = text.find(kLogged); at != std::string_view::npos)
            return at + kLogged.size() - 1;
        std::size_t at = text.find("Config(");
        while (at != std::string_view::npos && at > 0 && (std::isalnum(text[at - 1]) || text[at - 1] == '.'))
            --at;
        return at;
    }

  private:
    [[noreturn]] void refuse(std::string_view what) const {
        throw UserError(
            "{}:{}: {}; --from-torchtitan reads TOML, the JSON of --debug.save_config_file or "
            "--debug.print_config, and what python -m torchtitan.config.manager prints",
            path_, line(), what);
    }
    long line() const {
        const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size()));
        return 1 + std::count(text_.begin(), end, '\n');
    }

    char peek() {
        at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
        if (at_ == text_.size()) refuse("the text ends within the configuration");
        return text_[at_];
    }
    bool take(char letter) {
        if (peek() != letter) return false;
        ++at_;
        return true;
    }
    void expect(char letter) {
        if (!take(letter))
            refuse(fmt::format("'{}' is expected before '{}'", letter, shown(text_.substr(at_, 20))));
    }

    /// Reads the value of `key`. Keys of objects become settings; other values are returned, and none for
    /// what is no value of a configuration, such as a function.
    std::optional<Setting> read_value(const std::string& key, int depth) {
        if (depth > 50) refuse("objects are nested too deep");
        const auto setting = [&](const Value& value) {
            return Setting{key, value, is_set(value) ? toml_text(value) : "null", "in " + path_};
        };
        switch (peek()) {
            case '{':
                ++at_;
                read_object(key, depth);
                return std::nullopt;
            case '[':
            case '(':
                return read_list(key, depth);
            case '"':
            case '\'':
                return setting(read_string());
            case '<':
                skip_object_of_python();
                return std::nullopt;
            default:
                break;
        }
        const std::string word = read_word();
        if (at_ < text_.size() && text_[at_] == '(') {
            ++at_;
            read_call(key, depth);
            return std::nullopt;
        }
        return setting(word == "None" ? Value() : yaml_scalar(word));
    }

    void read_member(const std::string& key, const std::string& name, int depth) {
        const std::string full = key.empty() ? name : key + "." + name;
        if (name == "_torchao_config")
            settings_.push_back({full, true, "true", ""});  // has no keys of its own
        if (auto setting = read_value(full, depth + 1)) settings_.push_back(*std::move(setting));
    }

    void read_object(const std::string& key, int depth) {
        while (!take('}')) {
            const char first = peek();
            const std::string name = first == '"' || first == '\'' ? read_string() : read_word();
            expect(':');
            read_member(key, name, depth);
            if (!take(',') && peek() != '}') expect(',');
        }
    }

    /// A call with unnamed arguments, such as functools.partial, is not part of a configuration.
    void read_call(const std::string& key, int depth) {
        const std::size_t num_before = settings_.size();
        bool is_opaque = false;
        while (!take(')')) {
            const std::size_t begin = (peek(), at_);
            const bool begins_word =
                std::isalpha(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_';
            const std::string name = begins_word ? read_word() : "";
            if (!name.empty() && take('=')) {
                read_member(key, name, depth);
            } else {
                at_ = begin;
                is_opaque = true;
                read_value(key, depth + 1);
            }
            if (!take(',') && peek() != ')') expect(',');
        }
        if (is_opaque) settings_.resize(num_before);
    }

    std::optional<Setting> read_list(const std::string& key, int depth) {
        const char end = text_[at_++] == '[' ? ']' : ')';
        std::vector<std::string> words;
        bool is_value = true, has_lists = false;
        for (std::size_t i = 0; !take(end); ++i) {
            const auto element = read_value(fmt::format("{}.{}", key, i), depth + 1);
            if (!element) {
                is_value = false;
            } else if (std::holds_alternative<std::vector<std::string>>(element->value)) {
                has_lists = true;
            } else {
                const auto* text = std::get_if<std::string>(&element->value);
                words.push_back(text ? *text : element->found);
            }
            if (!take(',') && peek() != end) expect(',');
        }
        if (!is_value) return std::nullopt;
        if (has_lists) return Setting{key, Value(), "a list of lists", "in " + path_};
        return Setting{key, words, toml_text(words), "in " + path_};
    }

    std::string read_word() {
        const std::size_t begin = at_;
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                      std::string_view("_.+-").find(text_[at_]) != std::string_view::npos))
            ++at_;
        if (at_ == begin) refuse(fmt::format("'{}' is no value", shown(text_.substr(at_, 20))));
        return text_.substr(begin, at_ - begin);
    }

    void skip_object_of_python() {
        int depth = 0;
        do {
            if (at_ == text_.size()) refuse("the text ends within <...>");
            depth += text_[at_] == '<' ? 1 : text_[at_] == '>' ? -1 : 0;
            ++at_;
        } while (depth > 0);
    }

    std::string read_string() {
        const char quote = text_[at_++];
        std::string result;
        while (at_ < text_.size() && text_[at_] != quote) {
            if (text_[at_] == '\n') {
                ++at_;  // a break of the printed line
            } else if (text_[at_] == '\\') {
                result += read_escape();
            } else {
                result += text_[at_++];
            }
        }
        if (at_ == text_.size()) refuse("the text ends within a string");
        ++at_;
        return result;
    }

    /// Reads an escape as JSON has it. Python's others stand for characters that do not occur in
    /// configurations.
    std::string read_escape() {
        const auto next = [&](std::size_t size) {
            const std::string part = text_.substr(std::min(at_, text_.size()), size);
            at_ += part.size();
            return part;
        };
        std::string escape = next(2);
        if (escape == "\\'") return "'";
        if (escape == "\\u") escape += next(4);
        const auto upper = [&](std::size_t i) { return std::toupper(static_cast<unsigned char>(escape[i])); };
        const bool is_first_of_pair =
            escape.size() == 6 && upper(2) == 'D' && escape[3] > '7' && upper(3) < 'C';
        if (is_first_of_pair) escape += next(6);
        if (escape.size() < 2 || std::string_view("\"\\/bfnrtu").find(escape[1]) == std::string_view::npos)
            refuse("an escape that JSON lacks");
        return parse_json('"' + escape + '"', path_).get<std::string>();
    }

    const std::string &text_, &path_;
    std::size_t at_ = 0;
    std::vector<Setting> settings_;
};

}  // namespace

bool is_printed_python(const std::string& text) {
    return PrintedReader::begin_of_printed(text) != std::string::npos;
}

std::vector<Setting> read_printed_python(const std::string& text, const std::string& path) {
    return named_python(PrintedReader(text, path).read());
}

}  // namespace argosy::config
