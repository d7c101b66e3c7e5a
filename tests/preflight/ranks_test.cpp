// What the pre-flight does on several ranks: it looks at the nodes a second time.
#include <gtest/gtest.h>

#include "preflight/cluster.h"
#include "preflight/preflight.h"
#include "preflight/read_facts.h"
#include "preflight/tree.h"

namespace argosy::preflight {
namespace {

constexpr const char* kPort = "sys/class/infiniband/mlx5_0/ports/1/";

void put_node(const Tree& tree) {
    tree.put(std::string(kPort) + "state", "4: ACTIVE\n");
    tree.put(std::string(kPort) + "phys_state", "5: LinkUp\n");
    tree.put(std::string(kPort) + "link_layer", "InfiniBand\n");
    tree.put(std::string(kPort) + "rate", "400 Gb/sec (4X NDR)\n");
    tree.put(std::string(kPort) + "counters/symbol_error", "3\n");
    tree.put_nvidia_smi(
        "case $1 in *=pci.bus_id,*) echo '00000000:3B:00.0,,,,7,,,,,,,,GPU-8932f937' ;; esac\n");
    tree.put_dcgmi("echo '{\"body\": {\"Overall Health\": {\"value\": \"Failure\"}}}'\n");
}

/// Two ranks a node; the second would see what the first does not. Rank 0 has the facts of all nodes, and
/// others those of the node that they report.
TEST(LookAgain, ReadsAdaptersErrorsAndGpusAgainOnTheFirstRankOfEachNode) {
    const mpi::Comm world = mpi::Comm::world();
    const Tree tree;
    put_node(tree);
    Cluster cluster;
    for (int rank = 0; rank < world.size(); ++rank) {
        const std::string name = "n" + std::to_string(rank / 2);
        cluster.ranks.push_back({.rank = rank, .node = name});
        const bool has_facts = world.rank() == 0 || world.rank() == rank;
        if (rank % 2 == 0 && has_facts)
            cluster.nodes.push_back({.name = name, .adapter_ports = read_adapter_ports(tree.sources())});
    }
    if (world.rank() % 2 == 0) {
        tree.put(std::string(kPort) + "state", "1: DOWN\n");
        tree.put(std::string(kPort) + "counters/symbol_error", std::to_string(100 + world.rank()) + "\n");
    }
    look_again(world, bench::ControlChannel(world, /*timeout_seconds=*/60), tree.sources(),
               /*uses_gpus=*/true, cluster);
    for (const NodeFacts& facts : cluster.nodes) {
        ASSERT_TRUE(facts.adapter_ports_after);
        ASSERT_EQ(facts.adapter_ports_after->size(), 1u);
        EXPECT_EQ(facts.adapter_ports_after->at(0).state, "DOWN");
        EXPECT_EQ(facts.adapter_ports_after->at(0).counters.at("symbol_error"),
                  100 + 2 * (facts.name.back() - '0'));
        EXPECT_EQ(facts.adapter_ports.at(0).state, "ACTIVE");
        ASSERT_EQ(facts.dcgm.size(), 1u) << "its health, and not the diagnosis";
        EXPECT_EQ(facts.dcgm[0].command, "dcgmi health");
        ASSERT_EQ(facts.gpus_after.size(), 1u);
        EXPECT_EQ(facts.gpus_after[0].uncorrected_errors, 7);
    }
    if (world.rank() != 0) return;
    ASSERT_EQ(cluster.nodes.size(), static_cast<size_t>((world.size() + 1) / 2));
    const std::vector<Finding> findings = diagnose(cluster);
    for (const char* check : {"adapters' links under load", "DCGM"})
        EXPECT_NE(std::ranges::find(findings, check, &Finding::check), findings.end()) << check;
}

}  // namespace
}  // namespace argosy::preflight
