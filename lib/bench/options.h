// The settings of a run of nccl-bench, in nccl-tests' terms. command_line.h parses them. Sizes are in
// nccl-tests' notation: K, M and G are powers of 1024, and a sweep grows by a step or by a factor.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/element.h"

namespace argosy::bench {

/// Parses "8", "1.5M", "128m", "2G". Throws UserError, which names `option`.
size_t parse_size(const std::string& text, const char* option);

struct Sweep {
    size_t min_bytes = size_t{32} << 20;
    size_t max_bytes = size_t{32} << 20;
    size_t step_bytes = size_t{1} << 20;
    int factor = 0;  // 0: the sweep grows by step_bytes
};

/// All sizes of the sweep. Throws UserError for a sweep that does not end or goes backwards.
std::vector<size_t> sizes_of(const Sweep& sweep);

/// How the ranks' mean times are combined into the reported time (nccl-tests' --average).
enum class AcrossRanks { FirstRank = 0, Mean = 1, Min = 2, Max = 3 };

/// A two-dimensional mesh: `across` rows, each of `within` consecutive ranks.
struct GroupShape {
    int across, within;
};

struct Options {
    std::string collective;
    std::string backend;  // "mpi", "nccl"; empty: chosen by choose_carrier
    Sweep sweep;
    std::vector<ElementType> types;
    std::vector<Operation> operations;
    std::optional<int> root = 0;  // none: each rank in turn
    std::optional<GroupShape> mesh;

    int iterations = 20;
    int aggregated = 1;  // operations per iteration, under way at once, each on its own buffers
    int warmup = 1;
    int cycles = 1;  // passes over all sizes; 0: without end
    int checks = 1;  // verification runs per measurement; 0: never
    AcrossRanks across_ranks = AcrossRanks::Mean;
    bool blocking_calls = false;
    bool time_to_start = false;  // --report_cputime
    bool timestamps = false;
    bool per_iteration = false;
    int skipped = 0;  // the number of first iterations that the distribution leaves out
    double timeout_seconds = 120;
    std::optional<double> min_bus_bandwidth;  // GB/s; minimum for the mean of each mesh axis

    std::filesystem::path json, csv;  // empty: not written
};

/// Throws UserError unless the timeout is positive.
void check_timeout(double seconds);

/// Throws UserError for numbers that are invalid, by themselves or on `num_ranks` ranks.
void check(const Options& options, int num_ranks);

}  // namespace argosy::bench
