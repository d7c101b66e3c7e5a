// The table of checks as a whole, how findings name places, and the limits of speeds.
#include "preflight/diagnose.h"
#include "base/median.h"
#include "bench/collective.h"
#include "preflight/cluster.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

TEST(Diagnose, FindsNothingOnAGoodCluster) {
    EXPECT_EQ(checks_of(diagnose(good_cluster(1, 1))), Names{});
    EXPECT_EQ(checks_of(diagnose(good_cluster(1, 8))), Names{});
    EXPECT_EQ(checks_of(diagnose(good_cluster(64, 8))), Names{});
}

TEST(Diagnose, FindsNothingOnAnEmptyCluster) { EXPECT_EQ(checks_of(diagnose({})), Names{}); }

TEST(Diagnose, DoesNotFailASmallMachine) {
    for (const int ranks : {1, 2, 16}) {
        const std::vector<Finding> findings = diagnose(small_machine(ranks));
        EXPECT_EQ(worst_severity(findings), Severity::Warn);
        EXPECT_GE(findings.size(), 2u);
    }
}

TEST(Diagnose, ABuildWithoutGpusIsNotFailedByWhatOnlyGpusUse) {
    Cluster cluster = good_cluster();
    set_variable(cluster.ranks[1], "NCCL_ALGO", "Tree");
    set_everywhere(cluster, "CUDA_LAUNCH_BLOCKING", "1");
    cluster.nodes[0].gpus_problem = "NVIDIA-SMI has failed";
    const size_t num_findings = diagnose(cluster).size();
    ASSERT_EQ(worst_severity(diagnose(cluster)), Severity::Fail);
    for (RankFacts& rank : cluster.ranks) rank.cuda_version = "";
    const std::vector<Finding> findings = diagnose(cluster);
    EXPECT_EQ(findings.size(), num_findings);
    EXPECT_EQ(worst_severity(findings), Severity::Warn);
    for (const Finding& finding : findings) EXPECT_EQ(finding.bad_nodes, Names{}) << finding.check;
}

TEST(Diagnose, EveryFindingIsComplete) {
    Cluster cluster = small_machine(4);
    set_everywhere(cluster, "CUDA_LAUNCH_BLOCKING", "1");
    set_variable(cluster.ranks[1], "NCCL_ALGO", "Tree");
    for (const Finding& finding : diagnose(cluster)) {
        EXPECT_NE(finding.severity, Severity::Pass);
        for (const std::string& text : {finding.check, finding.where, finding.what, finding.remedy}) {
            EXPECT_FALSE(text.empty()) << finding.check << ": " << finding.what;
            EXPECT_EQ(text.find('\n'), text.npos) << text;
        }
    }
}

TEST(Diagnose, Describes512RanksInOneLine) {
    Cluster cluster = good_cluster(64, 8);
    for (int rank = 16; rank < 512; ++rank) set_variable(cluster.ranks[rank], "NCCL_DEBUG", "INFO");
    const std::vector<Finding> findings = diagnose(cluster);
    ASSERT_EQ(checks_of(findings), (Names{"NCCL_DEBUG", "NCCL_DEBUG"}));  // it differs, and it is costly
    EXPECT_EQ(findings[1].where, "ranks 16-511 on n2, n3, n4, n5, n6, n7, n8, n9 and 54 more");
}

TEST(Places, AreNamed) {
    const Cluster cluster = good_cluster(12, 2);
    EXPECT_EQ(describe_ranks({5}, cluster), "rank 5 on n2");
    EXPECT_EQ(describe_ranks({0, 1, 2, 9}, cluster), "ranks 0-2, 9 on n0, n1, n4");
    EXPECT_EQ(describe_ranks({0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}, cluster),
              "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 4 more");
    EXPECT_EQ(describe_nodes({"n3"}, cluster), "n3");
    EXPECT_EQ(describe_nodes({"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"}, cluster),
              "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more");
    std::vector<int> all;
    for (const RankFacts& rank : cluster.ranks) all.push_back(rank.rank);
    EXPECT_EQ(describe_ranks(all, cluster), "all ranks");
    EXPECT_EQ(describe_ranks({0}, good_cluster(1, 1)), "rank 0 on n0");
}

TEST(Places, TheMedianIsTheUpperOfTwo) {
    EXPECT_EQ(upper_median({}), 0);
    EXPECT_EQ(upper_median({3}), 3);
    EXPECT_EQ(upper_median({200, 400}), 400);
    EXPECT_EQ(upper_median({800, 400, 400}), 400);
}

/// A job of one node has nothing to compare with: a GPU's slot may have eight lanes by design.
TEST(Diagnose, OnlyWarnsOnOneNodeOfWhatMayBeSoByDesign) {
    Cluster cluster = good_cluster(1);
    cluster.nodes[0].gpus[0].pcie_lanes = 8;
    const Finding alone = only_finding(cluster, "GPU PCIe link");
    EXPECT_EQ(alone.severity, Severity::Warn);
    EXPECT_EQ(alone.bad_nodes, Names{});
    expect_says(alone, {"no other node shows whether this is so by design"});

    cluster = good_cluster(3);
    cluster.nodes[0].gpus[0].pcie_lanes = 8;
    EXPECT_EQ(only_finding(cluster, "GPU PCIe link").bad_nodes, Names{"n0"});
}

/// Four nodes of two H200, of which node 1 is slow in all ways.
struct SlowNode {
    Cluster cluster = good_cluster(4);
    Speeds speeds{.products = std::vector<double>(8, 700e12),
                  .nodes = {90e9, 60e9, 90e9, 90e9},
                  .devices = std::vector<cuda::Device>(8)};

    SlowNode() {
        speeds.products[2] = 490e12;  // 70 % of the others
        const bench::Case kind{.collective = &bench::collective_named("all_gather"), .bytes = 64 << 20};
        speeds.operations = {
            {{"dp_shard", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, kind, 0}, {200e9, 200e9, 200e9, 200e9}}};
        for (RankFacts& rank : cluster.ranks) {
            rank.load = {.device = "NVIDIA H200",
                         .bus_id = "0000:3" + std::to_string(rank.rank % 2) + ":00.0",
                         .flops_per_second = 480e12,
                         .hash = "00000000c0ffee00"};
        }
        for (NodeFacts& node : cluster.nodes) {
            for (size_t i = 0; i < node.gpus.size(); ++i)
                node.gpus[i].bus_id = "00000000:3" + std::to_string(i) + ":00.0";
        }
    }

    /// The levels of the findings called `check`.
    std::vector<Severity> levels(const std::string& check) const {
        std::vector<Finding> findings = diagnose(cluster);
        append(compare_speeds(speeds, cluster), findings);
        append(compare_stress(cluster, at::kBFloat16), findings);
        append(compare_with_fabric(speeds, cluster), findings);
        std::vector<Severity> found;
        for (const Finding& finding : findings) {
            if (finding.check == check) found.push_back(finding.severity);
        }
        return found;
    }
};

TEST(Limits, OfSpeedsDecideTheLevel) {
    using Levels = std::vector<Severity>;
    const SlowNode slow;
    EXPECT_EQ(slow.levels("matrix products"), Levels{Severity::Fail});
    EXPECT_EQ(slow.levels("line rate of nodes"), Levels{Severity::Warn});
    EXPECT_EQ(slow.levels("all_gather over dp_shard"), Levels{Severity::Warn});
    EXPECT_EQ(slow.levels("sustained matrix products"), Levels{Severity::Warn});
}

}  // namespace
}  // namespace argosy::preflight
