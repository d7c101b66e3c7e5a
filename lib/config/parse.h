// Turns a command line, and the file that it may name, into a checked JobConfig. The only side effect is
// reading that file: the caller acts on the request, and prints.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/schema.h"

namespace argosy::config {

enum class Request { Run, Help, Version, PrintConfig };

struct CommandLine {
    Request request = Request::Run;
    JobConfig config;  // for a Help or Version request: the defaults, no file is read
};

/// Accepts `--config F.toml`, `--section.key value`, `--section.key=value`, `--help`, `--version`,
/// `--print-config`, in any order. The command line overrides the file; of two equal options the later one
/// wins. Throws UserError. `words`: without the program's name.
CommandLine parse_command_line(const std::vector<std::string>& words);

// Reads a configuration file; only its source file uses the TOML library.

/// Every key of the file, not yet checked against the field table. Throws UserError if the file cannot be
/// read, is not TOML (with line and column), or has an unknown section.
std::vector<Setting> read_toml(const std::string& path);

}  // namespace argosy::config
