// A setting: one key, its value, and its source for messages. Files and command lines both become settings.
#pragma once

#include <string>

#include "config/job_config.h"
#include "config/value.h"

namespace argosy::config {

struct Setting {
    std::string key;    // "training.steps"; may be unknown
    Value value;        // unset: a value that no key accepts
    std::string found;  // the value in words, for messages: `the string "ten"`
    std::string place;  // "in run.toml:12", "on the command line"
};

/// Stores the value, or throws UserError: unknown key, wrong type, out of range, no such choice.
void apply(const Setting& setting, JobConfig& config);

}  // namespace argosy::config
