// Prints the field table in two forms: a configuration as TOML, and the help text.
#pragma once

#include <string>

#include "config/job_config.h"
#include "config/parse.h"

namespace argosy::config {

/// Every key with its value; parsing the text gives an equal config. An unset optional key becomes a comment.
std::string print_toml(const JobConfig& config);

/// The text for a command line that asks for help, the version or the configuration.
std::string answer(const CommandLine& command);

/// Every key by section, with accepted values, default and meaning; at most 110 columns.
std::string help_text();

}  // namespace argosy::config
