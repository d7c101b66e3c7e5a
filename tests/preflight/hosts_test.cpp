// Limits and nodes as machines.
#include "preflight/cluster.h"

namespace argosy::preflight {
namespace {

TEST(LockedMemory, MustBeLargeIfThereIsAnAdapter) {
    Cluster cluster = good_cluster(3);
    for (const int rank : {2, 3}) cluster.ranks[rank].memlock_bytes = 64 << 10;
    Finding finding = only_finding(cluster, "locked memory");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
    expect_says(finding, {"limited to 64 KiB"});

    for (const int rank : {2, 3}) cluster.ranks[rank].memlock_bytes = int64_t{32} << 30;
    EXPECT_EQ(only_finding(cluster, "locked memory").severity, Severity::Warn);

    for (RankFacts& rank : cluster.ranks) rank.memlock_bytes = 64 << 10;
    EXPECT_EQ(only_finding(cluster, "locked memory").bad_nodes, Names{});

    for (NodeFacts& node : cluster.nodes) node.adapter_ports.clear();
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(OpenFiles, MustSufficeForAllRanks) {
    Cluster cluster = good_cluster(1, 8);
    for (RankFacts& rank : cluster.ranks) rank.open_files = 1024;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    cluster = good_cluster(64, 8);
    for (RankFacts& rank : cluster.ranks) rank.open_files = 1024;
    expect_says(only_finding(cluster, "open files"),
                {"limited to 1024 per process, but 512 ranks may need 1280"});
}

TEST(OpenFiles, NameANodeOnceIfItsRanksAreNotAdjacent) {
    Cluster cluster = good_cluster(2, 2);
    std::swap(cluster.ranks[1].node, cluster.ranks[2].node);
    for (RankFacts& rank : cluster.ranks) rank.open_files = 64;
    EXPECT_EQ(only_finding(cluster, "open files").where, "all nodes");
}

TEST(SharedMemory, MustSufficeForTheRanksOfANode) {
    Cluster cluster = good_cluster(2, 2);
    cluster.nodes[1].shared_memory = Space{64 << 20, 64 << 20};  // docker's
    const Finding finding = only_finding(cluster, "/dev/shm");
    EXPECT_EQ(finding.severity, Severity::Warn);
    EXPECT_EQ(finding.where, "n1");
    cluster.nodes[1].shared_memory->free_bytes = 128 << 20;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    cluster = good_cluster(2, 1);
    for (NodeFacts& node : cluster.nodes) node.shared_memory = Space{64 << 20, 32 << 20};
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});  // nobody to share with
}

TEST(Clocks, ThatDifferGetAWarning) {
    Cluster cluster = good_cluster(3);
    cluster.clock_offsets = {0, 0, 0, 0, -90.2, -90.2};
    Finding finding = only_finding(cluster, "clocks");
    EXPECT_EQ(finding.severity, Severity::Warn);
    EXPECT_EQ(finding.where, "n2");
    expect_says(finding, {"minutes behind the other clocks"});
    cluster.clock_offsets = {0, 0, 7200, 7200, 7200.5, 7200};  // rank 0's is wrong
    finding = only_finding(cluster, "clocks");
    EXPECT_EQ(finding.where, "n0");
    expect_says(finding, {"hours behind the other clocks"});
    cluster.clock_offsets = {};
    cluster.clock_offsets.resize(6);
    cluster.clock_offsets[4] = cluster.clock_offsets[5] = 0.9;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    cluster.clock_offsets.clear();
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(DumpFolder, ThatCannotBeWrittenFails) {
    Cluster cluster = good_cluster(3);
    cluster.nodes[0].dump_folder->problem = "cannot create a file there: Read-only file system";
    const Finding finding = only_finding(cluster, "dump folder");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{"n0"});
    for (NodeFacts& node : cluster.nodes) node.dump_folder = std::nullopt;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(DumpFolder, ThatIsSlowGetsAWarning) {
    Cluster cluster = good_cluster(3);
    cluster.nodes[2].dump_folder->bytes_per_second = 4e8;
    Finding finding = only_finding(cluster, "dump folder");
    EXPECT_EQ(finding.severity, Severity::Warn);
    EXPECT_EQ(finding.where, "n2");
    expect_says(finding, {"less than a quarter of the 2000 MB/s"});
    cluster.nodes[2].dump_folder->bytes_per_second = 6e8;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    for (NodeFacts& node : cluster.nodes) node.dump_folder->bytes_per_second = 4e7;
    finding = only_finding(cluster, "dump folder");
    EXPECT_EQ(finding.where, "all nodes");
    expect_says(finding, {"less than 50 MB/s"});
}

TEST(DumpFolder, ThatIsNearlyFullGetsAWarning) {
    Cluster cluster = good_cluster();
    for (NodeFacts& node : cluster.nodes) node.dump_folder->space.free_bytes = int64_t{3} << 30;
    expect_says(only_finding(cluster, "dump folder"), {"has 3 GiB free"});
}

TEST(Hosts, WithAnAdapterForManagementOnlyHaveNoFabric) {
    Cluster cluster = good_cluster();
    for (RankFacts& rank : cluster.ranks) rank.memlock_bytes = 64 << 10;
    set_everywhere(cluster, "NCCL_IB_DISABLE", "1");
    EXPECT_EQ(checks_of(diagnose(cluster)), (Names{"NCCL_IB_DISABLE", "locked memory"}));
    for (NodeFacts& node : cluster.nodes) node.adapter_ports = {adapter_port("mlx5_bond_0", "Ethernet", 25)};
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    for (NodeFacts& node : cluster.nodes) node.adapter_ports = {adapter_port("mlx5_0", "Ethernet", 100)};
    EXPECT_EQ(checks_of(diagnose(cluster)), (Names{"NCCL_IB_DISABLE", "locked memory"}));
}

TEST(Hosts, InUseByOthersGetAWarning) {
    Cluster cluster = good_cluster(3);
    cluster.nodes[1].load_average = 150;
    EXPECT_EQ(only_finding(cluster, "load").where, "n1");
    expect_says(only_finding(cluster, "load"),
                {"the load is up to 150.0, more than 1.5 for each of 96 CPUs"});
    cluster.nodes[1].load_average = 96;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    cluster.nodes[1].available_memory_bytes = int64_t{300} << 30;
    expect_says(only_finding(cluster, "host memory"), {"less than half of the 900 GiB"});
}

}  // namespace
}  // namespace argosy::preflight
