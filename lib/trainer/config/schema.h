// The table of all keys of the configuration: name, type, limits, meaning and member of JobConfig. The
// parser, the help text and the printed TOML read this one table. fields.cpp has its lines.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.h"
#include "config/value.h"

namespace argosy::config {

// The values that a key accepts beyond its type: a range of numbers, or some names. The same data checks a
// value and describes the accepted values in the help text and in error messages.

/// An infinite value is outside the range, unless it is one of the bounds.
struct Range {
    double min = std::numeric_limits<double>::lowest();
    double max = std::numeric_limits<double>::max();
    bool min_excluded = false;
    bool max_excluded = false;
    bool or_minus_one = false;  // -1 is allowed too; the meaning of the key says what -1 stands for
};

struct Limits {
    Range range;
    std::vector<std::string> choices = {};  // for a Choice or a list of them; empty: any text
};

Limits any();
Limits at_least(double min);
Limits above(double min);  // finite
Limits above_or_infinite(double min);
Limits within(double min, double max);
Limits within_below(double min, double max);  // `max` itself is excluded
Limits minus_one_or_at_least(double min);
Limits size();  // 1 to the maximum int, so that a product of two sizes fits an int64_t
Limits minus_one_or_size();

/// ">= 1", "in [0, 1)", "-1 or >= 1"; empty if every number is allowed.
std::string range_text(const Range& range);

/// The limit that `value` breaks: ">= 1", "one of linear, cosine, sqrt". Empty if it breaks none.
std::string broken_limit(const Limits& limits, const Value& value);

struct Field {
    std::string key;   // "training.seq_len"
    std::string name;  // "seq_len"
    ValueType type;
    Limits limits;
    std::string meaning;
    std::string when_unset;  // what holds while the key is unset; empty if the key always has a value
    std::function<Value(const JobConfig&)> get;
    std::function<void(JobConfig&, const Value&)> set;  // REQUIRES: a value of this type within the limits
};

struct Section {
    std::string name;
    std::string meaning;
    std::vector<Field> fields;
};

const std::vector<Section>& schema();

/// Null if there is no such section or key.
const Section* find_section(std::string_view name);
const Field* find_field(std::string_view key);

std::vector<std::string> section_names();
std::vector<std::string> keys();

/// Returns what the user may have meant by the unknown key `name`, for messages: "did you mean
/// training.seq_len?". `others`: names beside the keys that are accepted in its place. `dashes` precede each
/// name: "--" on the command line.
std::string what_is_meant(const std::string& name, std::vector<std::string> others, std::string_view dashes);

// A setting: one key, its value, and its source for messages. Files and command lines both become settings.

struct Setting {
    std::string key;    // "training.steps"; may be unknown
    Value value;        // unset if no key accepts such a value
    std::string found;  // the value in words, for messages: `the string "ten"`
    std::string place;  // "in run.toml:12", "on the command line"
};

/// Returns every key of a configuration file, not yet checked against the field table. Throws UserError if
/// the file cannot be read, is not TOML (with line and column), or has an unknown section.
std::vector<Setting> read_toml(const std::string& path);

/// Returns every key of any TOML file, with the names of the tables around it. `option` is the option that
/// names the file, for messages.
std::vector<Setting> read_any_toml(const std::string& path, std::string_view option);

/// The text of the file that `option` names.
std::string content_of(const std::string& path, std::string_view option);

/// Whether the key has left and had this value, in TOML or "unset", by default: a file of an older run may
/// have it, and it changes nothing.
bool is_former_setting(std::string_view key, std::string_view value);

/// Stores the value, or throws UserError: unknown key, wrong type, out of range, no such choice.
void apply(const Setting& setting, JobConfig& config);

}  // namespace argosy::config
