// The table of every key: its name, type, limits, meaning, and member of JobConfig. The parser, the help text
// and the printed TOML all read this one table, whose lines are in fields.cpp.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.h"
#include "config/limits.h"
#include "config/value.h"

namespace argosy::config {

struct Field {
    std::string key;   // "training.seq_len"
    std::string name;  // "seq_len"
    ValueType type;
    Limits limits;
    std::string meaning;
    std::string when_unset;  // of an optional key: the behaviour without it; other keys cannot be unset
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

}  // namespace argosy::config
