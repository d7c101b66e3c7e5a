// Turns a command line, and the file that it may name, into a checked JobConfig. Nothing is printed here: the
// caller acts on the command. Only parse.cpp uses the TOML library.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"

namespace argosy::config {

enum class Command { Run, Help, Version, PrintConfig, Plan, Search };

/// The machine for which --plan and --search plan.
struct PlanRequest {
    static constexpr const char* kCpu = "cpu";  // this processor, which is measured
    int num_ranks = 1;                          // --gpus
    std::string device = kCpu;                  // --gpu
    int gpus_per_node = 8;                      // --gpus-per-node
    std::string links = {};                     // --links: files, separated by commas (plan/links.h)
    bool json = false;                          // --json
};

struct CommandLine {
    Command command = Command::Run;
    PlanRequest plan = {};
    JobConfig config = {};  // the defaults for Help and Version, which read no file
};

/// Accepts `--config F.toml`, `--section.key value`, `--section.key=value`, `--help`, `--version`,
/// `--print-config`, `--plan` and its options, in any order. A key on the command line overrides the file; the last one wins if a key
/// is given twice. Throws UserError. `words` is the command line without the program's name.
CommandLine parse_command_line(const std::vector<std::string>& words);

}  // namespace argosy::config
