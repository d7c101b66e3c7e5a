// What a run of nccl-bench found, as its reports show it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bench/carrier.h"
#include "bench/measure.h"

namespace argosy::bench {

using Clock = std::chrono::system_clock;

/// Reports show microseconds, and 1e9 bytes a second.
inline constexpr double kMicro = 1e6, kGiga = 1e9;

struct Row {
    Case kind;
    int cycle;
    Timing out_of_place, in_place;
    Clock::time_point ended;
};

/// The groups of one kind into which the ranks were split: "within" the rows of a mesh, "across" them, or
/// "all" ranks together.
struct AxisResults {
    std::string name;
    int num_groups;
    int group_size;
    std::vector<std::string> transport = {};  // how its ranks reach each other; empty: nobody says
    std::vector<Row> rows = {};

    int64_t num_wrong() const;
    /// GB/s: a plain mean over all rows and both placements, as nccl-tests takes it; small sizes pull it
    /// down.
    double mean_bus_bandwidth() const;
};

struct Results {
    Carrier carrier;
    std::vector<AxisResults> axes;
    Clock::time_point started, ended;

    /// Whether every result was right and no axis below the least bandwidth that was asked for.
    bool passed(const Options& options) const;
};

bool below_minimum(const AxisResults& axis, const Options& options);

}  // namespace argosy::bench
