#include "nccl/device_id.h"

#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "base/environment.h"
#include "base/output.h"
#include "cuda/device.h"

namespace argosy::nccl {
namespace {

std::string node_identity() {
    if (const std::string id = Environment::read().nccl_host_id; !id.empty()) return id;
    std::string boot_id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
    return host_name() + " " + boot_id;
}

}  // namespace

DeviceId device_id(int number) {
    DeviceId id;
    node_identity().copy(id.node, sizeof(id.node) - 1);
    cuda::describe_device(number).pci_bus_id.copy(id.pci_bus_id, sizeof(id.pci_bus_id) - 1);
    return id;
}

std::vector<Sharing> ranks_that_share(std::span<const DeviceId> ids) {
    std::vector<Sharing> sharing;
    std::map<std::pair<std::string, std::string>, int> owners;
    for (int rank = 0; const DeviceId& id : ids) {
        const auto [owner, is_first] = owners.emplace(std::pair(id.node, id.pci_bus_id), rank);
        if (!is_first) sharing.push_back({owner->second, rank});
        ++rank;
    }
    return sharing;
}

}  // namespace argosy::nccl
