// A run of nccl-bench, and its results. A run measures every size, type, operation and root of its options on
// every mesh axis. The room knows nothing of models or training; the pre-flight of a job also measures with
// it.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/control_channel.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "mpi/comm.h"

namespace argosy::bench {

using Clock = std::chrono::system_clock;

struct Row {
    Case kind;
    Timing out_of_place, in_place;
    std::optional<Beside> beside = {};  // if the options ask for it
    Clock::time_point ended;
};

/// The results on one mesh axis, which splits the ranks into groups. "within": the rows of the mesh.
/// "across": its columns. "all": one group of all ranks.
struct AxisResults {
    std::string name;
    int num_groups;
    int group_size;
    std::vector<std::string> transport = {};  // how the ranks are connected; empty: unknown
    std::vector<Row> rows = {};

    int64_t num_wrong() const;
    /// In GB/s: the plain mean over all rows and both placements, as in nccl-tests. Small sizes lower the
    /// mean.
    double mean_bus_bandwidth() const;
};

struct Results {
    BackendChoice choice;
    std::vector<AxisResults> axes;
    Clock::time_point started, ended;

    /// Whether every result was right and no mesh axis was below `options.min_bus_bandwidth`.
    bool passed(const Options& options) const;
};

bool below_minimum(const AxisResults& axis, const Options& options);

/// COLLECTIVE over `world`: runs all measurements. The results are the same on all ranks, except for
/// `own_seconds` and the times of day. Rank 0 passes the text of the tables to `print` piece by piece. Throws
/// TimeoutError, which names the missing ranks, if a rank does not answer in time.
Results run_benchmark(const mpi::Comm& world, const ControlChannel& control, const Options& options,
                      const std::function<void(const std::string&)>& print,
                      const MakeBackend& make = make_backend);

// The reports of a run: a table for people, and JSON for programs. The table has the lines and
// columns of nccl-tests, so that programs that parse the output of nccl-tests can parse the table. Columns
// that nccl-tests lacks come last: p50 and p99 of single iterations, for both placements. FORMAT.md defines
// every number.

/// How and where the run was started. The JSON report adds the environment of rank 0.
struct Setting {
    std::vector<std::string> arguments;
    std::vector<RankInfo> ranks;
};

/// The value of "format", the first key of a JSON report. A later run overwrites only empty files and files
/// with this mark.
inline constexpr const char* kJsonMark = "argosy nccl-bench";

std::string json_report(const Results& results, const Options& options, const Setting& setting);

/// The text before all tables: the library, the options and the ranks.
std::string preamble(const Options& options, const BackendChoice& choice, const std::vector<RankInfo>& ranks);

std::string table_header(const AxisResults& axis, const Options& options);
std::string table_row(const Row& row, const Options& options);
std::string table_footer(const AxisResults& axis, const Options& options);

/// The text after all tables.
std::string epilogue(const Options& options);

}  // namespace argosy::bench
