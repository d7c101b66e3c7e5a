// Prints the field table in two forms: a configuration as TOML, and the help text.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/parse.h"

namespace argosy::config {

/// Every key with its value; parsing the text gives an equal config. An unset optional key becomes a comment.
std::string print_toml(const JobConfig& config);

/// The text for a command line that asks for help, the version or the configuration.
std::string answer(const CommandLine& command);

/// Every key by section, with accepted values, default and meaning; at most 110 columns.
std::string help_text();

// Lists the differences between two configurations, for people who resume a run.

/// One line for each key whose value differs, "training.seq_len: 32 then, 64 now", in the order of `now`,
/// including keys that only one side has. Both texts are output of print_toml, of any version.
std::vector<std::string> differences(const std::string& then, const std::string& now);

}  // namespace argosy::config
