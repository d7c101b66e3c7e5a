// Identifies a rank's GPU as NCCL does, by the node's identity and the PCI bus address. Two ranks whose GPUs
// have the same identity cannot be in one communicator.
#pragma once

#include <span>
#include <vector>

namespace argosy::nccl {

/// Sent between ranks as raw bytes.
struct DeviceId {
    /// The host's name and the kernel's random boot id, because nodes (and containers on them) may have the
    /// same name. NCCL_HOSTID replaces both, and can make ranks of one node look like ranks of several nodes.
    char node[128] = {};
    char pci_bus_id[32] = {};
};
DeviceId device_id(int number);

/// Two ranks with the same GPU.
struct Sharing {
    int owner, rank;  // owner: the lowest rank with this GPU
};
/// One entry for each rank whose GPU a lower rank has, too. `ids` are by rank.
std::vector<Sharing> ranks_that_share(std::span<const DeviceId> ids);

}  // namespace argosy::nccl
