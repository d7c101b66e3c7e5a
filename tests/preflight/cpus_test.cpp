// CPUs that ranks may run on: their number, their neighbours, and the GPUs beside them.
#include "preflight/cluster.h"

namespace argosy::preflight {
namespace {

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
    const auto far_ranks = [&](const std::string& visible) {
        set_everywhere(cluster, "CUDA_VISIBLE_DEVICES", visible);
        const std::vector<Finding> findings = diagnose(cluster);
        return findings.empty() ? "" : findings[0].where;
    };
    EXPECT_EQ(far_ranks("0,1,2,3"), "");
    EXPECT_EQ(far_ranks("2,3,0,1"), "all ranks");
    EXPECT_EQ(far_ranks("GPU-0,GPU-1,GPU-2d0ac5f4,GPU-3d0ac5f4-1111-2222-3333-444444444444"), "");
    EXPECT_EQ(far_ranks("GPU-2,GPU-3d0ac5f4,GPU-0,GPU-1"), "all ranks");
    for (const char* unknown : {"MIG-0e1f2a3b", "GPU-7", "-1", "9", "NoDevFiles", ""}) {
        EXPECT_EQ(far_ranks(unknown), "");
    }
}

TEST(CpusNearGpus, AreNotCheckedIfNothingIsKnown) {
    Cluster cluster = two_sockets();
    for (const int rank : {2, 3, 6, 7}) bind(cluster, rank, rank % 2 ? "12-15" : "8-11", 4);
    for (RankFacts& rank : cluster.ranks) rank.cuda_version.clear();
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});  // computes on its CPUs
    for (RankFacts& rank : cluster.ranks) rank.cuda_version = "13.0";
    for (NodeFacts& node : cluster.nodes) {
        for (Gpu& gpu : node.gpus) gpu.near_cpus.clear();
    }
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

}  // namespace
}  // namespace argosy::preflight
