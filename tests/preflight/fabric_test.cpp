#include "preflight/diagnose.h"

#include <gtest/gtest.h>

#include "bench/collective.h"

namespace argosy::preflight {
namespace {

using Names = std::vector<std::string>;

AdapterPort port(const char* adapter, double gigabits, const char* state = "ACTIVE") {
    return {.adapter = adapter, .state = state, .link_layer = "InfiniBand", .gigabits = gigabits};
}

/// Nodes of two ranks, each with two adapters of 400 Gb/s: 100 GB/s leave a node.
Cluster cluster(int num_nodes = 2) {
    Cluster made;
    for (int node = 1; node <= num_nodes; ++node) {
        const std::string name = "n" + std::to_string(node);
        made.nodes.push_back({.name = name,
                              .boot_id = name,
                              .interfaces = {{"lo", "unknown"}, {"eth0", "up", 25000, true}},
                              .adapter_ports = {port("mlx5_0", 400), port("mlx5_1", 400)},
                              .gpus = {{.name = "NVIDIA H200"}}});
        for (int i = 0; i < 2; ++i) {
            made.ranks.push_back({.rank = static_cast<int>(made.ranks.size()), .node = name});
        }
    }
    return made;
}

void set(Cluster& cluster, const char* name, const char* value) {
    for (RankFacts& rank : cluster.ranks) rank.variables.push_back({name, value});
}

TEST(LineRate, IsThatOfTheChosenAdapters) {
    Cluster one = cluster();
    EXPECT_EQ(line_rate(one.nodes[0], RanksByNode(one)), 100e9);
    set(one, "NCCL_IB_HCA", "mlx5_1");
    EXPECT_EQ(line_rate(one.nodes[0], RanksByNode(one)), 50e9);
    one.nodes[0].adapter_ports[1].state = "DOWN";
    EXPECT_EQ(line_rate(one.nodes[0], RanksByNode(one)), 25e9 / 8) << "what is left is Ethernet";
    set(one, "NCCL_SOCKET_IFNAME", "ib");
    EXPECT_EQ(line_rate(one.nodes[0], RanksByNode(one)), std::nullopt);
    one = cluster();
    one.ranks[1].node = "n2";
    EXPECT_EQ(line_rate(one.nodes[0], RanksByNode(one)), 50e9) << "one rank fills one adapter";
    one = cluster();
    for (NodeFacts& node : one.nodes) node.adapter_ports.clear();
    one.nodes[0].interfaces.push_back({"eth1", "up", 100000, true});
    EXPECT_EQ(line_rate(one.nodes[0], RanksByNode(one)), 100e9 / 8) << "the fastest";
    set(one, "OMPI_MCA_btl_tcp_if_include", "eth0,eth1");
    EXPECT_EQ(line_rate(one.nodes[0], RanksByNode(one)), 125e9 / 8) << "both";
}

TEST(NvlinkRate, IsKnownByName) {
    EXPECT_EQ(nvlink_rate("NVIDIA H200"), 450e9);
    EXPECT_EQ(nvlink_rate("NVIDIA H100 80GB HBM3"), 450e9);
    EXPECT_EQ(nvlink_rate("NVIDIA A100-SXM4-80GB"), 300e9);
    for (const char* name : {"NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA H2000", "NVIDIA L40S", ""}) {
        EXPECT_EQ(nvlink_rate(name), std::nullopt) << name;
    }
}

TEST(Fabric, MustCarrySeventyPercentOfItsRate) {
    const Cluster one = cluster();
    EXPECT_TRUE(
        compare_with_fabric({.nodes = {90e9, 85e9}, .devices = std::vector<cuda::Device>(2)}, one).empty());
    auto findings = compare_with_fabric({.nodes = {90e9, 3e9}, .devices = std::vector<cuda::Device>(2)}, one);
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].severity, Severity::Fail);
    EXPECT_EQ(findings[0].where, "n2");
    EXPECT_EQ(findings[0].bad_nodes, Names{"n2"});
    EXPECT_EQ(findings[0].what, "the slowest node sends at 3 % of its line rate");
    findings = compare_with_fabric({.nodes = {3e9, 4e9}, .devices = std::vector<cuda::Device>(2)}, one);
    ASSERT_EQ(findings.size(), 1);
    EXPECT_TRUE(findings[0].bad_nodes.empty()) << "all nodes alike: a setting, not a node";
    for (const Finding& finding : compare_with_fabric({.nodes = {3e9, 50e9}}, one)) {
        EXPECT_EQ(finding.severity, Severity::Warn);
    }
}

/// Most nodes have 60 % of their line rate by design.
TEST(Fabric, MarksTheNodesFarBelowItsRateAndNoOthers) {
    const Cluster one = cluster(16);
    Speeds speeds{.nodes = std::vector<double>(16, 60e9), .devices = std::vector<cuda::Device>(32)};
    speeds.nodes[3] = 75e9;
    speeds.nodes[7] = 20e9;
    auto findings = compare_with_fabric(speeds, one);
    ASSERT_EQ(findings.size(), 2);
    EXPECT_EQ(findings[0].severity, Severity::Fail);
    EXPECT_EQ(findings[0].where, "n8");
    EXPECT_EQ(findings[0].bad_nodes, Names{"n8"});
    EXPECT_EQ(findings[1].severity, Severity::Warn);
    EXPECT_TRUE(findings[1].bad_nodes.empty());
    EXPECT_EQ(findings[1].what, "the slowest node sends at 60 % of its line rate");
    for (const Finding& finding : findings) EXPECT_EQ(finding.check, "line rate of nodes");

    std::fill_n(speeds.nodes.begin(), 9, 20e9);
    findings = compare_with_fabric(speeds, one);
    ASSERT_EQ(findings.size(), 2);
    EXPECT_EQ(findings[0].severity, Severity::Warn) << "most nodes: perhaps by design";
    EXPECT_TRUE(findings[0].bad_nodes.empty());
    speeds.nodes.assign(16, 20e9);
    findings = compare_with_fabric(speeds, one);
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].severity, Severity::Fail) << "all nodes: a setting";
    EXPECT_TRUE(findings[0].bad_nodes.empty());
}

TEST(Fabric, IsNotExpectedOnOneMachine) {
    Cluster one = cluster();
    one.nodes[1].boot_id = one.nodes[0].boot_id;
    EXPECT_TRUE(
        compare_with_fabric({.nodes = {1e9, 1e9}, .devices = std::vector<cuda::Device>(2)}, one).empty());
}

TEST(Fabric, WarnsOfSlowLinksWithinANode) {
    const bench::Case kind{.collective = &bench::collective_named("all_gather"), .bytes = 64 << 20};
    Speeds speeds{.operations = {{{"dp_shard", {{0, 1}, {2, 3}}, kind, 0}, {400e9, 40e9}}},
                  .devices = std::vector<cuda::Device>(2)};
    const auto findings = compare_with_fabric(speeds, cluster());
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].severity, Severity::Warn);
    EXPECT_EQ(findings[0].where, "ranks 2-3 on n2");
    speeds.devices.clear();
    EXPECT_TRUE(compare_with_fabric(speeds, cluster()).empty());

    const Speeds all{.operations = {{{"dp_shard", {{0, 1}, {2, 3}}, kind, 0}, {50e9, 40e9}}},
                     .devices = std::vector<cuda::Device>(2)};
    const auto one = compare_with_fabric(all, cluster());
    ASSERT_EQ(one.size(), 1) << "alike on all nodes";
    EXPECT_EQ(one[0].where, "all ranks");
    EXPECT_EQ(one[0].what, "bus bandwidth is only 40 GB/s, but NVLink carries 450 GB/s");
}

}  // namespace
}  // namespace argosy::preflight
