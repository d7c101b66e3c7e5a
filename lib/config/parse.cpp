#include "config/parse.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "config/consistency.h"
#include "config/nearest.h"
#include "config/schema.h"
#include "config/setting.h"
#include "config/toml_file.h"

namespace argosy::config {
namespace {

const std::map<std::string, Request> kRequests = {
    {"help", Request::Help}, {"version", Request::Version}, {"print-config", Request::PrintConfig}};

/// One `--name`, `--name=value` or `--name value`.
struct Option {
    std::string name;
    std::optional<std::string> value;
};

bool is_option(std::string_view word) { return word.starts_with("--"); }

/// Takes the option at `words[next]` and advances `next`. The following word is taken too if it can only be
/// the option's value.
Option take_option(const std::vector<std::string>& words, std::size_t& next) {
    const std::string& word = words[next++];
    if (!is_option(word)) {
        throw UserError(
            "unexpected '{}' on the command line; options are --config F.toml and --section.key value", word);
    }
    const std::size_t equals = word.find('=');
    Option option{word.substr(2, equals == std::string::npos ? equals : equals - 2), std::nullopt};
    if (equals != std::string::npos) {
        option.value = word.substr(equals + 1);
    } else if (!kRequests.contains(option.name) && next < words.size() && !is_option(words[next])) {
        option.value = words[next++];
    }
    return option;
}

const std::string& value_of(const Option& option) {
    if (!option.value) {
        throw UserError("--{} needs a value (write --{}=VALUE if the value begins with --)", option.name,
                        option.name);
    }
    return *option.value;
}

[[noreturn]] void refuse_unknown(const std::string& name) {
    std::vector<std::string> candidates = keys();
    for (const auto& [request_name, request] : kRequests) candidates.push_back(request_name);
    candidates.push_back("config");
    const std::string meant = nearest(name, candidates);
    throw UserError("unknown option --{}; {}", name,
                    meant.empty() ? "--help lists all options" : "did you mean --" + meant + "?");
}

Setting setting_of(const Option& option) {
    const Field* field = find_field(option.name);
    if (!field) refuse_unknown(option.name);
    const std::string& word = value_of(option);
    return {option.name, value_from_word(field->type, word), "'" + word + "'", "on the command line"};
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& words) {
    // --help works even if other options are wrong.
    if (std::ranges::find(words, "--help") != words.end()) return {.request = Request::Help, .config = {}};

    CommandLine result;
    std::optional<std::string> file;
    std::vector<Setting> settings;
    for (std::size_t next = 0; next < words.size();) {
        const Option option = take_option(words, next);
        if (const auto request = kRequests.find(option.name); request != kRequests.end()) {
            if (option.value)
                throw UserError("--{} takes no value, but got '{}'", option.name, *option.value);
            result.request = request->second;
        } else if (option.name == "config") {
            if (file)
                throw UserError("--config is given twice, as {} and {}; a run has one file", *file,
                                value_of(option));
            file = value_of(option);
        } else {
            settings.push_back(setting_of(option));
        }
    }
    if (result.request == Request::Version) return result;

    if (file) {
        for (const Setting& setting : read_toml(*file)) apply(setting, result.config);
    }
    for (const Setting& setting : settings) apply(setting, result.config);
    check_consistency(result.config);
    return result;
}

}  // namespace argosy::config
