// Prints a configuration as TOML, prints the help text, and lists the differences between two configurations.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/parse.h"

namespace argosy::config {

/// Returns every key with its value; parsing the text gives an equal config. An unset optional key becomes a
/// comment.
std::string print_toml(const JobConfig& config);

/// Returns what --print-config prints: a comment with the version, then print_toml.
std::string print_config(const JobConfig& config);

/// Returns the text for a command line that asks for help, the version or the configuration.
std::string answer(const CommandLine& line);

/// Returns every key by section, with accepted values, default and meaning; at most 110 columns.
std::string help_text();

/// For people who resume a run: returns one line for each key whose value differs, such as "training.seq_len:
/// 32 then, 64 now", in the order of `now`. Keys that only `then` has come last. Both texts are output of
/// print_toml, of any version.
std::vector<std::string> differences(const std::string& then, const std::string& now);

}  // namespace argosy::config
