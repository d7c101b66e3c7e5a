// What the pre-flight does on several ranks: it looks at the nodes a second time.
#include <gtest/gtest.h>

#include "preflight/cluster.h"
#include "preflight/preflight.h"
#include "preflight/read_facts.h"
#include "preflight/tree.h"

namespace argosy::preflight {
namespace {

/// Two ranks a node; the second would see what the first does not. Rank 0 has the facts of all nodes, and
/// others those of the node that they report.
TEST(LookAgain, ReadsErrorsOfGpusAgainOnTheFirstRankOfEachNode) {
    const mpi::Comm world = mpi::Comm::world();
    const Tree tree;
    Cluster cluster;
    for (int rank = 0; rank < world.size(); ++rank) {
        const std::string name = "n" + std::to_string(rank / 2);
        cluster.ranks.push_back({.rank = rank, .node = name});
        const bool has_facts = world.rank() == 0 || world.rank() == rank;
        if (rank % 2 == 0 && has_facts) cluster.nodes.push_back({.name = name});
    }
    tree.put_nvidia_smi("case $1 in *=pci.bus_id,*) echo '00000000:3B:00.0,,,," +
                        std::to_string(100 + world.rank()) + ",,,,,,,,GPU-8932f937' ;; esac\n");
    tree.put_dcgmi("echo '{\"body\": {\"Overall Health\": {\"value\": \"Failure\"}}}'\n");
    look_again(world, bench::ControlChannel(world, /*timeout_seconds=*/60), tree.sources(), cluster);
    for (const NodeFacts& facts : cluster.nodes) {
        ASSERT_EQ(facts.dcgm.size(), 1u);
        EXPECT_EQ(facts.dcgm[0].command, "dcgmi health");
        ASSERT_EQ(facts.gpus_after.size(), 1u);
        EXPECT_EQ(facts.gpus_after[0].uncorrected_errors, 100 + 2 * (facts.name.back() - '0'));
    }
    if (world.rank() != 0) return;
    ASSERT_EQ(cluster.nodes.size(), static_cast<size_t>((world.size() + 1) / 2));
    const std::vector<Finding> findings = diagnose(cluster);
    EXPECT_NE(std::ranges::find(findings, "DCGM", &Finding::check), findings.end());
}

}  // namespace
}  // namespace argosy::preflight
