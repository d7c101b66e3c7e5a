// The settings of a run of nccl-bench, and their command line, in nccl-tests' terms. In sizes, K, M and G are
// powers of 1024. A sweep over sizes grows by a step or by a factor.
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

/// A two-dimensional mesh of ranks: `across` rows of `within` consecutive ranks.
struct GroupShape {
    int across, within;
};

struct Options {
    std::string collective;
    std::string backend;  // "mpi", "nccl"; empty: chosen by choose_backend
    Sweep sweep;
    std::vector<ElementType> types;
    std::vector<Reduction> reductions;
    std::optional<int> root = 0;  // none: each rank in turn
    std::optional<GroupShape> mesh;

    int iterations = 20;
    int warmup = 1;
    int checks = 1;           // verification runs per measurement; 0: never
    bool percentiles = true;  // the table has columns for them
    double timeout_seconds = 120;
    bool beside_products = false;
    int product_multiprocessors = 0;          // that they may use of a GPU; 0: all
    std::optional<double> min_bus_bandwidth;  // GB/s; the run fails if an axis of the mesh has a lower mean

    std::filesystem::path json;  // empty: not written
};

/// Throws UserError unless the timeout is positive.
void check_timeout(double seconds);

/// Throws UserError for numbers that are invalid, by themselves or on `num_ranks` ranks.
void check(const Options& options, int num_ranks);

// nccl-bench's command line, with the options of nccl-tests. The application declares the options and stores
// their texts in `RawOptions`; parse_values() parses the texts and returns the `Options` of a run.

/// The option values as the user typed them. Values that need no parsing go straight into `options`.
struct RawOptions {
    Options options;
    std::string min_bytes = "32M", max_bytes = "32M", step_bytes = "1M", type = "float", reduction = "sum";
    std::string root = "0", mesh, percentiles = "on";
    std::string num_threads = "1", num_gpus = "1";  // of a rank; scripts for nccl-tests pass them
};

/// Parses all values. Throws UserError, which names the wrong option.
Options parse_values(const RawOptions& raw);

/// The text above the options in --help: it defines every number that is printed.
const char* help_text();

/// The help text of --backend.
inline constexpr const char* kBackendHelp =
    "nccl or mpi; default: nccl if it is built in and every rank sees a GPU";

}  // namespace argosy::bench
