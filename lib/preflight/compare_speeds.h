// Findings from the measured speeds of a job's ranks: collectives with wrong results, and ranks, groups and
// nodes that are slower than the others or than their hardware allows.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/speed.h"

namespace argosy::preflight {

/// A FAIL for each collective whose result had wrong elements, whatever the speeds are.
std::vector<Finding> find_wrong_results(const Speeds& speeds);

/// A rank, group or node that is more than 10 % below the median of the others gets WARN. Below three
/// quarters of the median it gets FAIL, because the job would wait for it at every step; a group across nodes
/// gets WARN even then. REQUIRES: ranks do not share cores.
std::vector<Finding> compare_speeds(const Speeds& speeds, const Cluster& cluster);

/// A rate that is below the others by far more than these differ among themselves.
struct Outlier {
    size_t index;
    double share;   // the rate divided by the others' median
    double zscore;  // deviations below that median; the deviation is robust (median absolute deviation)
};

/// The rates that are more than 10 % below the median of the others and have a robust z-score above 3.5. One
/// of two rates is too low if it is more than 10 % below the other. Rates that are not positive are ignored.
std::vector<Outlier> slow_ones(std::span<const double> rates);

/// The middle value, or the mean of the two middle values. REQUIRES: `values` is not empty.
double median(std::vector<double> values);

/// Bytes a second that can leave the node: the sum over its active adapters that NCCL_IB_HCA chooses, but
/// over no more adapters than the node has ranks. Without adapters: the sum over the interfaces that
/// NCCL_SOCKET_IFNAME or btl_tcp_if_include chooses, or else the fastest one. None: unknown.
std::optional<double> line_rate(const NodeFacts& node, const Cluster& cluster);

/// Bytes a second that one GPU can send to the others of its node over NVLink. `gpu` is the driver's name of
/// the GPU. None: the GPU has no NVLink, or its rate is unknown.
std::optional<double> nvlink_rate(std::string_view gpu);

enum class Memory { Host, Device };

/// Findings for speeds that are far below the hardware's rates: between nodes the rates of the adapters or
/// interfaces that the job's settings choose, within nodes those of the links between GPUs. `memory` is where
/// the sent buffers were: host memory rarely saturates a fast adapter, and no node is at fault, so host
/// memory gets WARN at the worst.
std::vector<Finding> compare_with_fabric(const Speeds& speeds, const Cluster& cluster, Memory memory);

}  // namespace argosy::preflight
