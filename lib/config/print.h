// The two texts that come out of the field table.
#pragma once

#include <string>

#include "config/job_config.h"

namespace argosy::config {

/// Every key with its value; parses again to an equal config. An optional key without a value is a comment.
std::string print_toml(const JobConfig& config);

/// Every key by section, with what it takes, its default and its meaning; at most 110 columns.
std::string help_text();

}  // namespace argosy::config
