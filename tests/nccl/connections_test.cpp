// Connections found in NCCL's log; the lines are in the formats of NCCL 2.18 to 2.28.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "nccl/connection_log.h"

namespace argosy::nccl {
namespace {

using Found = std::vector<std::string>;

constexpr std::string_view kInfiniBand =
    "node1:4015539:4015652 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal net "
    "plugin.\n"
    "node1:4015539:4015652 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0,mlx5_1\n"
    "node1:4015539:4015652 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB "
    "eno1:10.0.0.1<0>\n"
    "node1:4015539:4015652 [0] NCCL INFO Using network IB\n"
    "node1:4015539:4015652 [0] NCCL INFO NVLS multicast support is available on dev 0\n";
constexpr std::string_view kConnected =
    "node1:4015539:4015652 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p "
    "channels, "
    "2 p2p channels per peer\n"
    "node1:4015539:4015652 [0] NCCL INFO Channel 07/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
    "node1:4015539:4015652 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/1(4)/GDRDMA/Shared\n"
    "node1:4015539:4015652 [0] NCCL INFO Channel 00/0 : 0[0] -> 7[7] via P2P/CUMEM\n"
    "node1:4015539:4015652 [0] NCCL INFO Channel 01/0 : 0[0] -> 7[7] via P2P/CUMEM/read\n"
    "node1:4015539:4015652 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1\n";

std::string both() { return std::string(kInfiniBand) + std::string(kConnected); }

TEST(Connections, OfEightGpusANodeOverInfiniBand) {
    EXPECT_EQ(connections_in(both(), 0),
              (Found{"NET/IB with GDRDMA over mlx5_0:1/IB mlx5_1:1/IB", "NVLS available", "P2P/CUMEM"}));
}

TEST(Connections, BeginAtTheCommunicatorAndNetworksBefore) {
    const std::string log =
        both() + "node1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0\n";
    EXPECT_EQ(connections_in(log, both().size()),
              (Found{"NET/IB without GDRDMA over mlx5_0:1/IB mlx5_1:1/IB"}));
    EXPECT_EQ(connections_in(log, log.size()), Found{});
    EXPECT_EQ(connections_in(log, log.size() + 1), Found{});
}

TEST(Connections, OverSocketsNameTheInterface) {
    EXPECT_EQ(
        connections_in("n:1:2 [0] NCCL INFO NET/IB : No device found.\n"
                       "n:1:2 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0> [1]eth0:10.1.2.3<0>\n"
                       "n:1:2 [0] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3\n",
                       0),
        (Found{"NET/Socket without GDRDMA over docker0 eth0"}));
}

TEST(Connections, OfPluginsKeepTheirNames) {
    EXPECT_EQ(
        connections_in("n:1:2 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE; OOB eth0:10.0.0.1<0>\n"
                       "n:1:2 [3] NCCL INFO Channel 14/0 : 46[6] -> 38[6] [receive] via NET/IBext_v8/1\n",
                       0),
        (Found{"NET/IBext_v8 without GDRDMA over mlx5_0:1/RoCE"}));
    EXPECT_EQ(
        connections_in(
            "n:1:2 [3] NCCL INFO Channel 0/0 : 4[0] -> 8[0] [send] via NET/AWS Libfabric/1/GDRDMA\n", 0),
        (Found{"NET/AWS Libfabric with GDRDMA"}));
    EXPECT_EQ(connections_in("n:1:2 [0] NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA\n", 0),
              (Found{"COLLNET/SHARP"}));
}

TEST(Connections, WithinANode) {
    EXPECT_EQ(connections_in("n:532:1764 [1] NCCL INFO Channel 07 : 2[6] -> 3[7] via SHM/direct/direct\n"
                             "n:532:1764 [1] NCCL INFO Channel 04/0 : 1[1] -> 2[2] via P2P/direct pointer\n"
                             "n:532:1764 [1] NCCL INFO Channel 04/0 : 1[1] -> 2[2] via P2P/IPC/read\n",
                             0),
              (Found{"P2P/IPC", "P2P/direct pointer", "SHM/direct"}));
}

TEST(Connections, NoChannelsOfNvlsAreNoNvls) {
    EXPECT_EQ(
        connections_in("n:1:2 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p\n"
                       "n:1:2 [0] NCCL INFO 10 coll channels, 0 collnet channels, 10 nvls channels, 2 p2p\n",
                       0),
        (Found{"NVLS available"}));
    EXPECT_EQ(connections_in(
                  "n:1:2 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p\n", 0),
              Found{});
    EXPECT_EQ(connections_in("", 0), Found{});
}

TEST(ConnectionLog, LeavesTheEnvironmentAsItWas) {
    const std::string user_file = "/nowhere";
    setenv("NCCL_DEBUG_FILE", user_file.c_str(), 1);
    ConnectionLog log;
    EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "INFO");
    EXPECT_STREQ(std::getenv("NCCL_DEBUG_SUBSYS"), "INIT");
    EXPECT_NE(std::getenv("NCCL_DEBUG_FILE"), user_file);
    log.restore_environment();
    EXPECT_EQ(std::getenv("NCCL_DEBUG"), nullptr);
    EXPECT_EQ(std::getenv("NCCL_DEBUG_SUBSYS"), nullptr);
    EXPECT_EQ(std::getenv("NCCL_DEBUG_FILE"), user_file);
    unsetenv("NCCL_DEBUG_FILE");
}

TEST(ConnectionLog, HoldsTheContentOfItsFile) {
    ConnectionLog log;
    std::FILE* const file = std::fopen(std::getenv("NCCL_DEBUG_FILE"), "w");
    ASSERT_NE(file, nullptr);
    log.restore_environment();
    EXPECT_EQ(log.text(), "");
    const std::string lines(100'000, 'x');
    std::fputs(lines.c_str(), file);
    std::fclose(file);
    EXPECT_EQ(log.text(), lines);
}

}  // namespace
}  // namespace argosy::nccl
