// Turns a command line, and the file that it may name, into a checked JobConfig. The only side effect is
// reading that file: the caller acts on the request, and prints.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"

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

}  // namespace argosy::config
