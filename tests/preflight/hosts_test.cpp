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

void bind(Cluster& cluster, int rank, const std::string& cpus, int num_cpus) {
    cluster.ranks[rank].cpus = cpus;
    cluster.ranks[rank].num_cpus = num_cpus;
}

/// A node of two sockets, 48 CPUs and two GPUs each, with four ranks.
Cluster two_sockets() {
    Cluster cluster = good_cluster(2, 4);
    for (NodeFacts& node : cluster.nodes) {
        node.gpus = {good_gpu(0), good_gpu(1), good_gpu(2), good_gpu(3)};
        for (const int gpu : {2, 3}) node.gpus[gpu].near_cpus = "48-95";
    }
    for (const int rank : {2, 3, 6, 7}) bind(cluster, rank, rank % 2 ? "52-55" : "48-51", 4);
    for (RankFacts& rank : cluster.ranks)
        rank.visible_gpus = VisibleGpus{4, pci_address(good_gpu(rank.rank % 4).bus_id), rank.node};
    return cluster;
}

TEST(SharedCpus, GetAWarningIfOthersAreFree) {
    Cluster cluster = two_sockets();
    bind(cluster, 6, "0-3", 4);                               // as rank 4
    for (NodeFacts& node : cluster.nodes) node.gpus.clear();  // which has a finding of its own
    const Finding finding = only_finding(cluster, "CPUs that ranks share");
    EXPECT_EQ(finding.severity, Severity::Warn);
    EXPECT_EQ(finding.where, "n1");
    expect_says(finding, {"share 4 CPUs, but no rank may run on 84 of the node's 96 CPUs", "jobs/bind.sh"});
}

TEST(SharedCpus, AreNoFaultIfRanksAreNotBoundOneByOne) {
    Cluster cluster = two_sockets();
    for (const int rank : {0, 1, 4, 5}) bind(cluster, rank, "0-47", 48);
    for (const int rank : {2, 3, 6, 7}) bind(cluster, rank, "48-95", 48);
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});  // to a socket each
    for (int rank = 0; rank < 8; ++rank) bind(cluster, rank, "0-7,48-55", 16);
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});  // to what the job has of the node
    for (int rank = 0; rank < 8; ++rank) bind(cluster, rank, "0-95", 96);
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});  // not at all
    for (const int rank : {0, 1}) bind(cluster, rank, "0-3", 4);
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});  // some of them
}

TEST(SharedCpus, AreNoFaultIfThereAreMoreRanksThanCpus) {
    Cluster cluster = small_machine(4);
    for (const int rank : {2, 3}) bind(cluster, rank, "1", 1);
    for (const std::string& check : checks_of(diagnose(cluster))) EXPECT_NE(check, "CPUs that ranks share");
}

TEST(CpusNearGpus, AreThoseOfTheirSocket) { EXPECT_EQ(checks_of(diagnose(two_sockets())), Names{}); }

TEST(CpusNearGpus, AreNotAvailableToRanksOfAStepOnOneSocket) {
    Cluster cluster = two_sockets();
    for (const int rank : {2, 3, 6, 7}) bind(cluster, rank, rank % 2 ? "12-15" : "8-11", 4);
    const Finding finding = only_finding(cluster, "CPUs near the GPUs");
    EXPECT_EQ(finding.severity, Severity::Warn);
    EXPECT_EQ(finding.where, "ranks 2-3, 6-7");
    EXPECT_EQ(finding.bad_nodes, Names{});
    expect_says(finding, {"rank 2 may run on CPUs 8-11, but its GPU 00000002:3B:00.0 is near CPUs 48-95",
                          "without --cpus-per-task and --exact", "jobs/bind.sh"});
}

TEST(CpusNearGpus, AreCheckedForTheGpuThatARankSees) {
    Cluster cluster = two_sockets();
    for (RankFacts& rank : cluster.ranks)
        rank.visible_gpus->own = pci_address(good_gpu(3 - rank.rank % 4).bus_id);
    EXPECT_EQ(only_finding(cluster, "CPUs near the GPUs").where, "all ranks");
    for (RankFacts& rank : cluster.ranks)  // not listed
        rank.visible_gpus->own = "0000:9" + std::to_string(rank.rank) + ":00.0";
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(CpusNearGpus, AreNotCheckedIfNothingIsKnown) {
    Cluster cluster = two_sockets();
    for (const int rank : {2, 3, 6, 7}) bind(cluster, rank, rank % 2 ? "12-15" : "8-11", 4);
    const Cluster unknown_cpus = cluster;
    for (RankFacts& rank : cluster.ranks) rank.visible_gpus.reset();
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});  // computes on its CPUs
    cluster = unknown_cpus;
    for (NodeFacts& node : cluster.nodes) {
        for (Gpu& gpu : node.gpus) gpu.near_cpus.clear();
    }
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

}  // namespace
}  // namespace argosy::preflight
