// What was measured beside what the hardware promises: between nodes the rates of the adapters or interfaces
// that are chosen, within nodes those of the links between GPUs.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/speed.h"

namespace argosy::preflight {

/// Bytes a second that can leave the node: of its active adapters, those that NCCL_IB_HCA chooses, but no
/// more of them than the node has ranks; without adapters, of the interfaces that NCCL_SOCKET_IFNAME or
/// btl_tcp_if_include chooses, else of the fastest one. None where nothing is known.
std::optional<double> line_rate(const NodeFacts& node, const Cluster& cluster);

/// Bytes a second that one GPU sends to the others of its node over NVLink, by its driver's name; none for
/// GPUs without it.
std::optional<double> nvlink_rate(std::string_view gpu);

enum class Memory { Host, Device };

/// `memory`: of the buffers that were sent. Host memory rarely fills a fast adapter, which is no fault of a
/// node, so that warns at most.
std::vector<Finding> compare_with_fabric(const Speeds& speeds, const Cluster& cluster, Memory memory);

}  // namespace argosy::preflight
