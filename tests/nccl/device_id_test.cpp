// How NCCL distinguishes GPUs, on stand-ins.
#include "nccl/device_id.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "cuda/device.h"

namespace argosy::nccl {
namespace {

DeviceId place(const std::string& node, const std::string& bus) {
    DeviceId made;
    node.copy(made.node, sizeof(made.node) - 1);
    bus.copy(made.pci_bus_id, sizeof(made.pci_bus_id) - 1);
    return made;
}

TEST(DeviceId, NodesDifferByNameAndBoot) {
    char name[65] = {};
    ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
    std::stringstream boot;
    boot << std::ifstream("/proc/sys/kernel/random/boot_id").rdbuf();
    std::string boot_id = boot.str();
    boot_id.pop_back();  // the end of the line
    ASSERT_EQ(boot_id.size(), 36u);
    EXPECT_EQ(device_id(1).node, std::string(name) + " " + boot_id);
    EXPECT_EQ(device_id(1).pci_bus_id, cuda::describe_device(1).pci_bus_id);
}

TEST(DeviceId, NcclHostIdDefinesNodes) {
    setenv("NCCL_HOSTID", "seven", 1);
    EXPECT_STREQ(device_id(0).node, "seven");
    setenv("NCCL_HOSTID", std::string(500, 'a').c_str(), 1);
    EXPECT_EQ(device_id(0).node, std::string(127, 'a'));
    unsetenv("NCCL_HOSTID");
}

TEST(DeviceId, SharingIsOfOneNodeAndOneBus) {
    const DeviceId places[] = {place("a", "1"), place("a", "2"), place("b", "1"),
                               place("a", "2"), place("a", "2"), place("b", "1")};
    const auto sharing = ranks_that_share(places);
    ASSERT_EQ(sharing.size(), 3u);
    const int expected[][2] = {{1, 3}, {1, 4}, {2, 5}};
    for (size_t i = 0; i < sharing.size(); ++i) {
        EXPECT_EQ(sharing[i].owner, expected[i][0]);
        EXPECT_EQ(sharing[i].rank, expected[i][1]);
    }
    EXPECT_TRUE(ranks_that_share(std::span(places, 3)).empty());
}

}  // namespace
}  // namespace argosy::nccl
