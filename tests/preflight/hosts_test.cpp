// Nodes as machines: limits, and the CPUs that ranks may run on, with their neighbours and the GPUs beside
// them.
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

TEST(LockedMemory, NamesANodeOnceIfItsRanksAreNotAdjacent) {
    Cluster cluster = good_cluster(2, 2);
    std::swap(cluster.ranks[1].node, cluster.ranks[2].node);
    for (RankFacts& rank : cluster.ranks) rank.memlock_bytes = 64 << 10;
    EXPECT_EQ(only_finding(cluster, "locked memory").where, "all nodes");
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

TEST(Binding, ToOneCpuGetsAWarningIfThereAreMore) {
    Cluster cluster = good_cluster(1, 8);
    for (RankFacts& rank : cluster.ranks) {
        rank.cpus = std::to_string(rank.rank);
        rank.num_cpus = 1;
    }
    expect_says(only_finding(cluster, "CPUs of the ranks"),
                {"only one of the 96 CPUs, and there are 8 ranks"});
    cluster.nodes[0].num_cpus = 8;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(Binding, ToTheSameFewCpusGetsAWarning) {
    Cluster cluster = good_cluster(1, 8);
    for (RankFacts& rank : cluster.ranks) rank.cpus = "0-3";
    expect_says(only_finding(cluster, "CPUs of the ranks"),
                {"more ranks than CPUs on CPUs 0-3, but the node has 96"});
    cluster.nodes[0].num_cpus = 4;  // more ranks than CPUs, and not bound at all
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

}  // namespace
}  // namespace argosy::preflight
