// Turns a command line, and the file that it may name, into a checked JobConfig. Nothing is printed here: the
// caller acts on the command.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"

namespace argosy::config {

enum class Command { Run, Help, Version, Completion, PrintConfig, Plan, Search, Translate };

/// The machine for which --plan and --search plan.
struct PlanRequest {
    static constexpr const char* kCpu = "cpu";  // this processor, which is measured
    int num_ranks = 1;                          // --gpus
    std::string device = {};                    // --gpu, in lower case; empty: kCpu, refused for many ranks
    double gpu_memory_gib = 0;                  // --gpu-memory; 0: that of the GPU's table
    std::string network = {}, nvlink = {};      // --network, --nvlink: speeds in words (plan/gpus.h)
    std::string memory_speed = {};              // --memory-speed, likewise
    double power = 0;                           // --power, watts of a GPU; 0: the datasheet's limit
    std::string program = {};                   // --program: whose share of the peak; empty: argosy's
    int gpus_per_node = 8;                      // --gpus-per-node
    double product_share = 0;                   // --product-share; 0: the program's
    std::string links = {};                     // --links: files, separated by commas (plan/machine.h)
    bool json = false;                          // --json
};

enum class ForeignProgram { TorchTitan, LitGpt };

/// The configuration of another program, for --from-torchtitan and --from-litgpt (arrival.h).
struct ArrivalRequest {
    ForeignProgram program = ForeignProgram::TorchTitan;
    std::string path = {};             // the other program's file
    std::string output = {};           // --output; by default NAME.argosy.toml in the working folder
    std::string torchtitan_date = {};  // --torchtitan-date, YYYY-MM-DD: of the TorchTitan that read the file
    std::vector<std::string> words =
        {};  // options of the command line, keys of either program: {name, value, ...}
};

struct CommandLine {
    Command command = Command::Run;
    PlanRequest plan = {};
    ArrivalRequest arrival = {};
    JobConfig config = {};        // the defaults for Help, Version and Completion, which read no file
    std::string help_topic = {};  // of Help: a section, a part of its name, a key, "all", or empty
};

/// Accepts `--config F.toml`, `--section.key value`, `--section.key=value`, `--help`, `--version`,
/// `--print-config`, `--plan`, `--from-torchtitan` and their options, in any order; a boolean without a value
/// is true. A key on the command line overrides the file; the last one wins if a key is given twice. Throws
/// UserError, whose message has every wrong option and key. `words` is the command line without the program's
/// name.
CommandLine parse_command_line(const std::vector<std::string>& words);

/// Whether the command line asks for nothing but answer() (config/print.h), for which no ranks are needed.
bool asks_for_text(const std::vector<std::string>& words);

/// The command in words: "training", "--plan".
std::string name_of(Command command);

/// The names of all options that are not keys, without dashes, in the order of --help.
std::vector<std::string> option_names();

}  // namespace argosy::config
