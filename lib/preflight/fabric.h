// Compares measured speeds with the rates of the hardware: between nodes with the rates of the adapters or
// interfaces that the job's settings choose, within nodes with those of the links between GPUs.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/speed.h"

namespace argosy::preflight {

/// Bytes a second that can leave the node: the sum over its active adapters that NCCL_IB_HCA chooses, but
/// over no more adapters than the node has ranks. Without adapters: the sum over the interfaces that
/// NCCL_SOCKET_IFNAME or btl_tcp_if_include chooses, or else the fastest one. None: unknown.
std::optional<double> line_rate(const NodeFacts& node, const Cluster& cluster);

/// Bytes a second that one GPU can send to the others of its node over NVLink. `gpu` is the driver's name of
/// the GPU. None: the GPU has no NVLink, or its rate is unknown.
std::optional<double> nvlink_rate(std::string_view gpu);

enum class Memory { Host, Device };

/// Findings for speeds that are far below the hardware's rates. `memory` is where the sent buffers were: host
/// memory rarely saturates a fast adapter, and no node is at fault, so host memory gets WARN at the worst.
std::vector<Finding> compare_with_fabric(const Speeds& speeds, const Cluster& cluster, Memory memory);

}  // namespace argosy::preflight
