// Findings from the measured speeds of a job's ranks: collectives with wrong results, and ranks, groups and
// nodes that are slower than the others or than their hardware allows.
//
// Sources: compare_speeds.cpp, find_wrong_results.cpp and compare_with_fabric.cpp, as the comments below say.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/speed.h"

namespace argosy::preflight {

// find_wrong_results.cpp

/// A FAIL for each collective whose result had wrong elements, and for each such pair of nodes, at any speed.
/// A node is bad if the result of a group within it was wrong, or if its exchanges with several nodes show
/// that it corrupts data.
std::vector<Finding> find_wrong_results(const Speeds& speeds, const Cluster& cluster);

// compare_speeds.cpp

/// A WARN that lists the measurements that the deadline left out, if there are any.
std::vector<Finding> find_not_done(const Speeds& speeds, double deadline_seconds);

/// Turns findings on pairs of nodes into WARN if the deadline cut the measurement of pairs short.
void weaken_if_cut_short(const Speeds& speeds, std::vector<Finding>& findings);

/// Findings for slow_outliers() among the ranks, groups, nodes and rails. An outlier gets WARN. An outlier
/// below a share of the others' median (Thresholds::peers) gets FAIL, because the job would wait for it at
/// every step, unless it is a group across nodes. Slow paths between good nodes get WARN. REQUIRES: ranks do
/// not share cores.
std::vector<Finding> compare_speeds(const Speeds& speeds, const Cluster& cluster);

/// A rate that is far below the others, measured by how much the others differ.
struct Outlier {
    size_t index;
    double share;   // the rate divided by the others' median
    double zscore;  // robust: distance below that median in deviations (median absolute deviation)
};

/// The rates that are more than 10 % below the median of the others and have a robust z-score above 3.5; of
/// two rates, the one that is more than 10 % below the other. Rates that are not positive are ignored.
std::vector<Outlier> slow_outliers(std::span<const double> rates);

/// Rates that ranks with devices of one kind should have in common.
struct RankRates {
    std::string check;  // the name of the findings
    std::vector<int> ranks = {};
    std::vector<double> rates = {};  // of these ranks, in FLOP/s
    const char* remedy;
};

/// Findings for slow_outliers() among the rates, with the levels of compare_speeds().
std::vector<Finding> compare_ranks(const RankRates& rates, const Cluster& cluster);

// compare_with_fabric.cpp

/// Bytes a second that can leave the node: the sum over the active adapters that NCCL_IB_HCA chooses, but
/// over at most one adapter for each rank of the node. Without adapters: the sum over the interfaces that
/// NCCL_SOCKET_IFNAME or btl_tcp_if_include chooses, else the rate of the fastest interface. None: unknown.
std::optional<double> line_rate(const NodeFacts& node, const RanksByNode& ranks);

/// Bytes a second that one GPU can send to the others of its node over NVLink. `gpu` is the driver's name of
/// the GPU. None: the GPU has no NVLink, or its rate is unknown.
std::optional<double> nvlink_rate(std::string_view gpu);

/// Findings for speeds that are far below the hardware's rates: line_rate() between nodes, nvlink_rate()
/// within nodes. Speeds between buffers in host memory get at most WARN, because host memory rarely saturates
/// a fast adapter, even on a healthy node.
std::vector<Finding> compare_with_fabric(const Speeds& speeds, const Cluster& cluster);

}  // namespace argosy::preflight
