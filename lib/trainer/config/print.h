// Prints a configuration as TOML, prints the help text, and lists the differences between two configurations.
#pragma once

#include <string>
#include <vector>

#include "base/program.h"
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

/// Returns usage, examples, options, and the names of all keys by section; of a topic (a section, the part of
/// a section's name before a dot, a key, or "all") its keys with accepted values, defaults and meanings. At
/// most 110 columns. Throws UserError if there is no such topic.
std::string help_text(const std::string& topic = {});

/// All options of `pretrain`, or its keys alone, with the values of those that have few.
std::vector<CompletedOption> completed_options();
std::vector<CompletedOption> completed_keys();

/// For people who resume a run: returns one line for each key whose value differs, such as "training.seq_len:
/// 32 then, 64 now", in the order of `now`. Keys that only `then` has come last. Both texts are output of
/// print_toml, of any version.
std::vector<std::string> differences(const std::string& then, const std::string& now);

}  // namespace argosy::config
