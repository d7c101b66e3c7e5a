// nccl-bench's command line: the words that a user writes before they mean something, and what they mean. The
// application names them as options; this module knows what nccl-tests calls them and what it would do with
// them.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "bench/options.h"

namespace argosy::bench {

/// What nccl-tests takes and this program cannot do: it is refused with the reason. A value that asks for
/// nothing is accepted, since scripts pass it.
struct RefusedOption {
    const char* names;    // "-t,--nthreads"
    const char* neutral;  // "1"
    const char* reason;
};
const std::vector<RefusedOption>& refused_options();

/// What needs no reading is in `options` at once.
struct Words {
    Words();

    Options options;
    std::string min_bytes = "32M", max_bytes = "32M", step_bytes = "1M", type = "float", operation = "sum";
    std::string root = "0", mesh;
    int across_ranks = 1;
    std::deque<std::string> refused;  // values of the refused options, in their order
};

/// Throws UserError that names the option.
Options meaning_of(const Words& words);

/// The text above the options in --help: what every number is.
const char* help_text();

/// The names of all collectives, with commas.
std::string collective_names();

}  // namespace argosy::bench
