// What the pre-flight computes for 2048 nodes takes little time: no step is quadratic in nodes or ranks.
#include "base/clock.h"
#include "bench/collective.h"
#include "preflight/cluster.h"
#include "preflight/compare_speeds.h"
#include "preflight/nodes.h"

namespace argosy::preflight {
namespace {

constexpr int kNodes = 2048, kRanksPerNode = 8;
constexpr double kMostSeconds = 1.5;  // of a busy processor; they take 0.1 s on a quiet one

/// Every node has eight adapters and GPUs. Some problems are on all nodes.
Cluster large_cluster() {
    Cluster cluster = good_cluster(kNodes, kRanksPerNode);
    for (NodeFacts& node : cluster.nodes) {
        node.adapter_ports.clear();
        node.gpus.clear();
        for (int i = 0; i < kRanksPerNode; ++i) {
            node.adapter_ports.push_back(adapter_port("mlx5_" + std::to_string(i)));
            node.gpus.push_back(good_gpu(i));
        }
        node.adapter_ports[3].gigabits = 200;
        node.load = 500;
    }
    cluster.nodes[7].adapter_ports[2].gigabits = 100;
    cluster.nodes[9].gpus.pop_back();
    set_everywhere(cluster, "NCCL_IB_HCA", "mlx5");
    return cluster;
}

TEST(Scale, DiagnosesManyNodesQuickly) {
    const Cluster cluster = large_cluster();
    const double start = seconds_now();
    EXPECT_EQ(checks_of(diagnose(cluster)), (Names{"adapters' rates", "number of GPUs", "load"}));
    EXPECT_LT(seconds_now() - start, kMostSeconds);
}

TEST(Scale, ComparesManySpeedsQuickly) {
    const Cluster cluster = large_cluster();
    Speeds speeds;
    std::vector<std::vector<int>> groups;
    for (int rank = 0; rank < kNodes * kRanksPerNode; ++rank) {
        speeds.products.push_back(rank % 3 == 0 ? 4e14 : 7e14 + rank * 1e9);
        if (rank % kRanksPerNode == 0) groups.emplace_back();
        groups.back().push_back(rank);
    }
    for (int node = 0; node < kNodes; ++node)
        speeds.nodes.push_back(node % 5 == 0 ? 1e11 : 4e11 + node * 1e7);
    const bench::Case kind{.collective = &bench::collective_named("all_gather")};
    speeds.operations.push_back({{"dp_shard", groups, kind, 0}, speeds.nodes});
    speeds.rails.assign(kNodes, std::vector<double>(kRanksPerNode, 5e10));
    for (int node = 0; node < kNodes; node += 3) speeds.rails[node][1] = 1e10;
    const double start = seconds_now();
    EXPECT_GT(compare_speeds(speeds, cluster).size(), kNodes / 5);
    compare_with_fabric(speeds, cluster);
    EXPECT_LT(seconds_now() - start, kMostSeconds);
}

TEST(Scale, GroupsManyRanksQuickly) {
    std::vector<std::string> names;
    for (int rank = 0; rank < kNodes * kRanksPerNode; ++rank)
        names.push_back("node" + std::to_string(rank / kRanksPerNode));
    const double start = seconds_now();
    EXPECT_EQ(group_by_node(names).size(), kNodes);
    EXPECT_LT(seconds_now() - start, kMostSeconds);
}

}  // namespace
}  // namespace argosy::preflight
