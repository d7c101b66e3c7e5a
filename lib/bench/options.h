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

/// Throws UserError for a limit of no time.
void check_timeout(double seconds);

/// Throws UserError for numbers that make no sense, by themselves or on so many ranks.
void check(const Options& options, int num_ranks);

}  // namespace argosy::bench
