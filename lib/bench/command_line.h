// nccl-bench's command line, with the options of nccl-tests. The application declares the options and stores
// their texts in `RawOptions`; meaning_of() parses and checks the texts, and returns the `Options` of a run.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "bench/options.h"

namespace argosy::bench {

/// An option of nccl-tests that this program refuses, with the reason. The neutral value, which asks for
/// nothing special, is accepted, since scripts pass it.
struct RefusedOption {
    const char* names;    // "-t,--nthreads"
    const char* neutral;  // "1"
    const char* reason;
};
const std::vector<RefusedOption>& refused_options();

/// The option values as the user typed them. Values that need no parsing go straight into `options`.
struct RawOptions {
    RawOptions();

    Options options;
    std::string min_bytes = "32M", max_bytes = "32M", step_bytes = "1M", type = "float", operation = "sum";
    std::string root = "0", mesh;
    int across_ranks = 1;
    std::deque<std::string> refused;  // values of the refused options, in their order
};

/// Parses all values. Throws UserError, which names the wrong option.
Options meaning_of(const RawOptions& words);

/// The text above the options in --help: the definition of every number.
const char* help_text();

/// The help text of --backend.
inline constexpr const char* kBackendHelp =
    "nccl or mpi; default: nccl if it is built in and every rank sees a GPU";

/// The names of all collectives, separated by commas.
std::string collective_names();

}  // namespace argosy::bench
