#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/arrival.h"

namespace argosy::config {
namespace {

// The help omits an upper bound from this size on: such a bound comes from the member's type, not from the
// key.
constexpr double kMaxInt = std::numeric_limits<int>::max();

std::string upper_bound_text(const Range& range) {
    return fmt::format("{} {}", range.max_excluded ? "<" : "<=", range.max);
}

std::string broken_range(const Range& range, double number) {
    if (range.or_minus_one && number == -1) return "";
    const bool high_enough = range.min_excluded ? number > range.min : number >= range.min;
    const bool low_enough = range.max_excluded ? number < range.max : number <= range.max;
    if (high_enough && low_enough) return "";
    if (!std::isfinite(number)) return "finite";
    return number > range.min && !low_enough ? upper_bound_text(range) : range_text(range);
}

constexpr std::pair<std::string_view, std::string_view> kFormerSettings[] = {
    {"compile.search_algorithms", "false"},
    {"compile.side_stream", "false"},
    {"metrics.live_line", "\"auto\""},
    {"parallelism.module_fqns_per_model_part", "[]"},
    {"profiling.enable_memory_snapshot", "false"},
    {"profiling.save_memory_snapshot_folder", "\"memory_snapshot\""},
    {"quantize.linear.float8.emulated_accumulation", "\"float32\""},
    {"training.loss_scale_growth_interval", "unset"},
    {"training.loss_scale_init", "unset"},
};

const Field& field_of(const Setting& setting) {
    if (const Field* field = find_field(setting.key)) return *field;
    throw UserError("unknown key {} {}; {}", setting.key, setting.place, what_is_meant(setting.key, {}, ""));
}

/// The keys of the section that are spelled nearly as `key`, or else those whose names contain its name.
std::vector<std::string> alike_in_section(const Section& section, std::string_view key) {
    std::vector<std::string> all, alike;
    for (const Field& field : section.fields) all.push_back(field.key);
    if (const std::string meant = nearest(key, all); !meant.empty()) return {meant};
    const std::string_view name = key.substr(section.name.size() + 1);
    for (const Field& field : section.fields) {
        if (!name.empty() && field.name.find(name) != std::string::npos) alike.push_back(field.key);
    }
    return alike;
}

}  // namespace

bool is_former_setting(std::string_view key, std::string_view value) {
    return std::ranges::find(kFormerSettings, std::pair(key, value)) != std::end(kFormerSettings);
}

const Section* find_section(std::string_view name) {
    const auto found = std::ranges::find(schema(), name, &Section::name);
    return found == schema().end() ? nullptr : &*found;
}

const Field* find_field(std::string_view key) {
    for (const Section& section : schema()) {
        const auto found = std::ranges::find(section.fields, key, &Field::key);
        if (found != section.fields.end()) return &*found;
    }
    return nullptr;
}

std::vector<std::string> section_names() {
    std::vector<std::string> names;
    for (const Section& section : schema()) names.push_back(section.name);
    return names;
}

std::vector<std::string> keys() {
    std::vector<std::string> keys;
    for (const Section& section : schema()) {
        for (const Field& field : section.fields) keys.push_back(field.key);
    }
    return keys;
}

std::string what_is_meant(const std::string& name, std::vector<std::string> others, std::string_view dashes) {
    if (const std::string answer = foreign_answer(name); !answer.empty()) return answer;
    const size_t dot = name.rfind('.');
    const Section* section = dot == std::string::npos ? nullptr : find_section(name.substr(0, dot));
    std::vector<std::string> meant = section ? alike_in_section(*section, name) : std::vector<std::string>();
    if (meant.empty()) {
        const std::vector<std::string> all = keys();
        others.insert(others.begin(), all.begin(), all.end());
        meant.push_back(nearest(name, others));
    }
    if (meant.front().empty())
        return section ? fmt::format("--help {} lists the keys of its section", section->name)
                       : "--help lists all keys";
    for (std::string& one : meant) one.insert(0, dashes);
    return fmt::format("did you mean {}?", fmt::join(meant, " or "));
}

Limits any() { return {}; }
Limits at_least(double min) { return {.range = {.min = min}}; }
Limits above(double min) { return {.range = {.min = min, .min_excluded = true}}; }
Limits above_or_infinite(double min) {
    return {.range = {.min = min, .max = std::numeric_limits<double>::infinity(), .min_excluded = true}};
}
Limits within(double min, double max) { return {.range = {.min = min, .max = max}}; }
Limits within_below(double min, double max) {
    return {.range = {.min = min, .max = max, .max_excluded = true}};
}
Limits minus_one_or_at_least(double min) { return {.range = {.min = min, .or_minus_one = true}}; }
Limits size() { return within(1, kMaxInt); }
Limits minus_one_or_size() { return {.range = {.min = 1, .max = kMaxInt, .or_minus_one = true}}; }

std::string range_text(const Range& range) {
    const char* minus_one = range.or_minus_one ? "-1 or " : "";
    if (range.max < kMaxInt) {
        return fmt::format("{}in {}{}, {}{}", minus_one, range.min_excluded ? '(' : '[', range.min, range.max,
                           range.max_excluded ? ')' : ']');
    }
    if (range.min == std::numeric_limits<double>::lowest()) return "";
    return fmt::format("{}{} {}", minus_one, range.min_excluded ? ">" : ">=", range.min);
}

std::string broken_limit(const Limits& limits, const Value& value) {
    if (const auto* integer = std::get_if<int64_t>(&value)) {
        return broken_range(limits.range, static_cast<double>(*integer));
    }
    if (const auto* number = std::get_if<double>(&value)) return broken_range(limits.range, *number);
    if (const auto* duration = std::get_if<Duration>(&value)) {
        return broken_range(limits.range, static_cast<double>(duration->seconds));
    }
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
        for (const int64_t element : *list) {
            const std::string broken = broken_range(limits.range, static_cast<double>(element));
            if (!broken.empty()) return "made of integers " + broken;
        }
    }
    if (const auto* rows = std::get_if<std::vector<Row>>(&value)) {
        for (const Row& row : *rows) {
            for (const auto& [name, cell] : row) {
                const auto* number = std::get_if<double>(&cell);
                const std::string broken = number ? broken_range(limits.range, *number) : "";
                if (!broken.empty()) return fmt::format("made of tables whose {} is {}", name, broken);
                if (cell == Cell(""))
                    return fmt::format("made of tables whose {} is not empty", name);
            }
        }
    }
    const auto is_choice = [&](const std::string& name) {
        return std::ranges::find(limits.choices, name) != limits.choices.end();
    };
    if (const auto* name = std::get_if<std::string>(&value); name && !limits.choices.empty()) {
        if (!is_choice(*name)) return fmt::format("one of {}", fmt::join(limits.choices, ", "));
    }
    if (const auto* names = std::get_if<std::vector<std::string>>(&value)) {
        if (!limits.choices.empty() && !std::ranges::all_of(*names, is_choice)) {
            return fmt::format("a list of some of {}", fmt::join(limits.choices, ", "));
        }
        if (std::ranges::count(*names, "") > 0) return "made of names that are not empty";
    }
    return "";
}

void apply(const Setting& setting, JobConfig& config) {
    if (is_set(setting.value) && is_former_setting(setting.key, toml_text(setting.value))) return;
    const Field& field = field_of(setting);
    const Value value = value_as(field.type, setting.value);
    if (!is_set(value)) {
        throw UserError("{} {} must be {}, but is {}", field.key, setting.place, type_name(field.type),
                        setting.found);
    }
    const std::string broken = broken_limit(field.limits, value);
    if (!broken.empty()) {
        throw UserError("{} {} is {}; it must be {}", field.key, setting.place, toml_text(value), broken);
    }
    field.set(config, value);
}

}  // namespace argosy::config
