#include "config/differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace argosy::config {
namespace {

using Printed = std::vector<std::pair<std::string, std::string>>;  // key and value, in order

/// Parses "steps = 4" and "# total_steps is unset: the run's steps"; a value never spans lines.
std::pair<std::string, std::string> key_and_value(const std::string& line) {
    constexpr const char* kUnset = " is unset";
    if (const size_t equals = line.find(" = "); !line.starts_with("# ") && equals != std::string::npos) {
        return {line.substr(0, equals), line.substr(equals + 3)};
    }
    if (const size_t unset = line.find(kUnset); line.starts_with("# ") && unset != std::string::npos) {
        return {line.substr(2, unset - 2), "unset"};
    }
    return {};
}

Printed printed(const std::string& toml) {
    Printed values;
    std::string section;
    std::istringstream lines(toml);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("[") && line.ends_with("]")) section = line.substr(1, line.size() - 2);
        const auto [key, value] = key_and_value(line);
        if (!key.empty()) values.emplace_back(section + "." + key, value);
    }
    return values;
}

std::string value_in(const Printed& values, const std::string& key) {
    const auto found = std::ranges::find(values, key, &Printed::value_type::first);
    return found == values.end() ? "unknown" : found->second;
}

}  // namespace

std::vector<std::string> differences(const std::string& then, const std::string& now) {
    const Printed values_then = printed(then);
    Printed values_now = printed(now);
    for (const auto& [key, value] : values_then) {
        if (value_in(values_now, key) == "unknown") values_now.emplace_back(key, "unknown");
    }
    std::vector<std::string> lines;
    for (const auto& [key, value] : values_now) {
        const std::string before = value_in(values_then, key);
        if (before != value) lines.push_back(fmt::format("{}: {} then, {} now", key, before, value));
    }
    return lines;
}

}  // namespace argosy::config
