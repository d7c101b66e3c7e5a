// From the words of a command line, and the file that they may name, to a checked JobConfig. Pure but for
// reading that file: whoever calls acts on the request, and prints.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"

namespace argosy::config {

enum class Request { Run, Help, Version, PrintConfig };

struct CommandLine {
    Request request = Request::Run;
    JobConfig config;  // of a Help or Version request: the defaults, no file was read
};

/// Takes `--config F.toml`, `--section.key value`, `--section.key=value`, `--help`, `--version`,
/// `--print-config`, in any order. The command line goes over the file; of two equal options the later one
/// counts. Throws UserError. `words`: without the program's name.
CommandLine parse_command_line(const std::vector<std::string>& words);

}  // namespace argosy::config
