// What a run of nccl-bench measures and how, in nccl-tests' terms; its command line is made from it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/element.h"
#include "bench/sizes.h"

namespace argosy::bench {

/// How the ranks' mean times become the one that is shown (nccl-tests' --average).
enum class AcrossRanks { FirstRank = 0, Mean = 1, Min = 2, Max = 3 };

/// Ranks as rows of neighbours: `across` rows of `within` ranks.
struct GroupShape {
    int across, within;
};

struct Options {
    std::string collective;
    std::string backend;  // empty: the best that this build has
    Sweep sweep;
    std::vector<ElementType> types;
    std::vector<Operation> operations;
    std::optional<int> root = 0;  // none: each rank in turn
    std::optional<GroupShape> mesh;

    int iterations = 20;
    int aggregated = 1;  // operations under way at once, each on buffers of its own, that make one iteration
    int warmup = 1;
    int cycles = 1;  // passes over all sizes; 0: without end
    int checks = 1;  // times that each result is verified; 0: never
    AcrossRanks across_ranks = AcrossRanks::Mean;
    bool blocking_calls = false;
    bool time_to_start = false;  // --report_cputime
    bool timestamps = false;
    bool per_iteration = false;
    int skipped = 0;  // first iterations that do not count in the distribution
    double timeout_seconds = 120;
    std::optional<double> min_bus_bandwidth;  // GB/s, of the average of each axis

    std::filesystem::path json, csv;  // empty: not written
};

/// "4x8". Throws UserError.
GroupShape parse_mesh(const std::string& text);

/// "3", or "all": none. Throws UserError.
std::optional<int> parse_root(const std::string& text);

/// nccl-tests' number, 0 to 3. Throws UserError.
AcrossRanks parse_across_ranks(int number);

/// Throws UserError for numbers that make no sense, by themselves or on so many ranks.
void check(const Options& options, int num_ranks);

/// What nccl-tests takes and this program cannot do: it is refused with the reason. A value that asks for
/// nothing is accepted, since scripts pass it.
struct RefusedOption {
    const char* names;    // "-t,--nthreads"
    const char* neutral;  // "1"
    const char* reason;
};
const std::vector<RefusedOption>& refused_options();

}  // namespace argosy::bench
