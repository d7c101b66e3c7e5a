// Which GPU a rank has, as NCCL tells them apart: by the node's identity and the address on its bus. Two that
// NCCL takes for one cannot be in one communicator.
#pragma once

#include <span>
#include <vector>

namespace argosy::nccl {

/// Travels between ranks as it is.
struct DevicePlace {
    /// The host's name and what its kernel drew when it started, since nodes (and containers on them) may be
    /// called alike; or NCCL_HOSTID, where ranks are to pass for such on different nodes.
    char node[128] = {};
    char pci_bus_id[32] = {};
};
DevicePlace place_of_device(int number);

/// Two ranks with the same GPU.
struct Sharing {
    int owner, rank;  // owner: the first of all that have it
};
/// Of all ranks' places, by number: one for each rank that has the GPU of one before it.
std::vector<Sharing> ranks_that_share(std::span<const DevicePlace> places);

}  // namespace argosy::nccl
