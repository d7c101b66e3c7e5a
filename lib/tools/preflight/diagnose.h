// Finds what is wrong with a set of nodes, from the facts that their ranks collected and from the measured
// speeds. All functions are pure, and only rank 0 calls them.
//
// Sources: diagnose.cpp has diagnose(), its table of checks, and not_checked(). The checks are in the other
// files, as the comments below say.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "preflight/facts.h"
#include "preflight/finding.h"
#include "preflight/speed.h"

namespace argosy::preflight {

/// All findings, in the order of the checks. Equal problems on several nodes or ranks make one finding.
std::vector<Finding> diagnose(const Cluster& cluster);

/// Lines that each name something that could not be looked at, and the reason.
std::vector<std::string> not_checked(const Cluster& cluster);

// The checks, one function each, grouped by topic. A check returns a finding for each thing that is wrong.
// CHECKS.md describes each check. The severities are chosen so that a machine without GPUs and fabric gets no
// FAIL.

using Check = std::vector<Finding> (*)(const Cluster&);

// check_settings.cpp (the table of slow settings is in base/environment.h)
std::vector<Finding> check_slow_settings(const Cluster& cluster);
std::vector<Finding> check_variables_alike(const Cluster& cluster);
std::vector<Finding> check_programs_alike(const Cluster& cluster);
std::vector<Finding> check_run_inputs_alike(const Cluster& cluster);
std::vector<Finding> check_interfaces(const Cluster& cluster);

// check_adapters.cpp
std::vector<Finding> check_named_adapters(const Cluster& cluster);
std::vector<Finding> check_adapter_links(const Cluster& cluster);
std::vector<Finding> check_adapter_rates(const Cluster& cluster);
std::vector<Finding> check_adapter_choice(const Cluster& cluster);

// check_gpus.cpp. All findings of the first two are FAIL and mean that some rank has no GPU of its own.
std::vector<Finding> check_visible_gpus(const Cluster& cluster);
std::vector<Finding> check_ranks_per_gpu(const Cluster& cluster);
std::vector<Finding> check_gpu_states(const Cluster& cluster);
std::vector<Finding> check_gpu_answers(const Cluster& cluster);
std::vector<Finding> check_gpu_memory_under_stress(const Cluster& cluster);
std::vector<Finding> check_num_gpus(const Cluster& cluster);
std::vector<Finding> check_gpus_alike(const Cluster& cluster);
std::vector<Finding> check_dcgm(const Cluster& cluster);

// find_wrong_results.cpp
std::vector<Finding> check_products(const Cluster& cluster);

// check_hosts.cpp
std::vector<Finding> check_locked_memory(const Cluster& cluster);
std::vector<Finding> check_shared_memory(const Cluster& cluster);
std::vector<Finding> check_dump_folder(const Cluster& cluster);
std::vector<Finding> check_binding(const Cluster& cluster);

// Findings from the measured speeds. diagnose() leaves them out, because speeds are only comparable if ranks
// do not share cores.

/// A FAIL for each collective whose result had wrong elements, and for each such pair of nodes, at any speed.
/// A node is bad if the result of a group within it was wrong, or if its exchanges with several nodes show
/// that it corrupts data.
std::vector<Finding> find_wrong_results(const Speeds& speeds, const Cluster& cluster);

// compare_speeds.cpp

/// A WARN that lists the measurements that the deadline left out, if there are any.
std::vector<Finding> find_not_done(const Speeds& speeds, double deadline_seconds);

/// Turns findings on pairs of nodes into WARN if the deadline cut the measurement of pairs short.
void weaken_if_cut_short(const Speeds& speeds, std::vector<Finding>& findings);

inline constexpr double kMinShareOfPeers = 0.75;

/// Findings for slow_outliers() among the ranks, groups, nodes and rails. An outlier gets WARN. An outlier
/// below kMinShareOfPeers of the others' median gets FAIL, because the job would wait for it at
/// every step, unless it is a group across nodes. REQUIRES: ranks do not share cores.
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

inline constexpr size_t kMinBytesOfLinks = 16 << 20;  // smaller messages do not saturate a link

// compare_with_hardware.cpp

/// Bytes a second that can leave the node: the sum over the active adapters that NCCL_IB_HCA chooses, but
/// over at most one adapter for each rank of the node. Without adapters: the sum over the interfaces that
/// NCCL_SOCKET_IFNAME or btl_tcp_if_include chooses, else the rate of the fastest interface. None: unknown.
std::optional<double> line_rate(const NodeFacts& node, const RanksByNode& ranks);

/// Bytes a second that one GPU can send to the others of its node over NVLink. `gpu` is the driver's name of
/// the GPU. None: the GPU has no NVLink, or its rate is unknown.
std::optional<double> nvlink_rate(std::string_view gpu);

/// Compares the rates under stress. Products get a finding if they are slower than those of devices of the
/// same kind, or slow for the device's datasheet. Processors are left out: their products are so short that
/// other programs disturb them. `type`: of the products.
std::vector<Finding> compare_stress(const Cluster& cluster, at::ScalarType type);

/// Findings for speeds that are far below the hardware's rates: line_rate() between nodes, nvlink_rate()
/// within nodes. Speeds between buffers in host memory get at most WARN, because host memory rarely saturates
/// a fast adapter, even on a healthy node.
std::vector<Finding> compare_with_fabric(const Speeds& speeds, const Cluster& cluster);

// compare_with_plan.cpp, which has add_planned() (speed.h), too

inline constexpr double kMinShareOfPlan = 0.8;

/// A WARN for each collective of 16 MiB or more of which some groups have less than kMinShareOfPlan of the
/// bus bandwidth that a plan assumes. Never a FAIL, because a cluster may have slower links by design.
std::vector<Finding> compare_with_plan(const Speeds& speeds, const Cluster& cluster);

}  // namespace argosy::preflight
