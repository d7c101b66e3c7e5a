#include "preflight/cluster.h"

namespace argosy::preflight {
namespace {

constexpr const char* kChoice = "NCCL_IB_HCA";

TEST(NamedAdapters, MissingOnOneNodeFailAndNameTheNode) {
    Cluster cluster = good_cluster(3);
    set_everywhere(cluster, kChoice, "mlx5_0,mlx5_1");
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    cluster.nodes[1].adapter_ports.pop_back();
    const Finding finding = only_finding(cluster, kChoice);
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.where, "n1");
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
    expect_says(finding, {"names mlx5_1, which the node lacks"});
}

TEST(NamedAdapters, MissingOnAllNodesMakeNoNodeBad) {
    Cluster cluster = good_cluster();
    set_everywhere(cluster, kChoice, "hfi1");
    const Finding finding = only_finding(cluster, kChoice);
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.where, "all nodes");
    EXPECT_EQ(finding.bad_nodes, Names{});
}

TEST(NamedAdapters, AreUselessOnASingleNode) {
    Cluster cluster = good_cluster(1);
    set_everywhere(cluster, kChoice, "hfi1");
    EXPECT_EQ(only_finding(cluster, kChoice).severity, Severity::Warn);
}

TEST(NamedAdapters, FollowTheSyntaxOfNccl) {
    for (const char* value : {"mlx5", "=mlx5_0,mlx5_1", "^mlx5_7", "mlx5_0:1", "", "^=hfi1"}) {
        Cluster cluster = good_cluster();
        set_everywhere(cluster, kChoice, value);
        EXPECT_EQ(checks_of(diagnose(cluster)), Names{}) << value;
    }
    for (const char* value : {"=mlx5", "mlx5_0:2", "mlx5_0,mlx4"}) {
        Cluster cluster = good_cluster();
        set_everywhere(cluster, kChoice, value);
        EXPECT_EQ(only_finding(cluster, kChoice).severity, Severity::Fail) << value;
    }
}

TEST(AdapterLinks, ThatAreDownMakeTheirNodeBad) {
    for (const char* choice : {"", "mlx5_0,mlx5_1", "mlx5"}) {
        Cluster cluster = good_cluster(4);
        if (*choice) set_everywhere(cluster, kChoice, choice);
        cluster.nodes[2].adapter_ports[1].state = "DOWN";
        cluster.nodes[2].adapter_ports[1].physical_state = "Polling";
        const Finding finding = only_finding(cluster, "adapters' links");
        EXPECT_EQ(finding.severity, Severity::Fail);
        EXPECT_EQ(finding.bad_nodes, Names{"n2"});
        expect_says(finding, {"mlx5_1 is DOWN / Polling"});
    }
}

TEST(AdapterLinks, MayBeDownIfTheAdapterIsUnused) {
    Cluster cluster = good_cluster();
    for (NodeFacts& node : cluster.nodes) {
        node.adapter_ports.push_back(adapter_port("mlx5_2", "Ethernet", 25));
        node.adapter_ports[2].state = "DOWN";
    }
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    cluster.nodes[0].adapter_ports[2].state = "ACTIVE";  // but the choice leaves it out
    set_everywhere(cluster, kChoice, "mlx5_0,mlx5_1");
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});

    cluster = good_cluster(5);
    for (NodeFacts& node : cluster.nodes) node.adapter_ports[1].state = "DOWN";
    cluster.nodes[3].adapter_ports[1].state = "ACTIVE";  // one node has a cable more
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(AdapterLinks, MustBeUpIfTheAdapterIsNamedInFull) {
    Cluster cluster = good_cluster();
    for (NodeFacts& node : cluster.nodes) node.adapter_ports[1].state = "INIT";
    set_everywhere(cluster, kChoice, "mlx5_0,mlx5_1");
    const Finding finding = only_finding(cluster, "adapters' links");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.where, "all nodes");
}

/// Nodes with an Ethernet adapter for management, mlx5_2, of which a job knows nothing.
Cluster managed_cluster() {
    Cluster cluster = good_cluster(8);
    for (NodeFacts& node : cluster.nodes)
        node.adapter_ports.push_back(adapter_port("mlx5_2", "Ethernet", 25));
    return cluster;
}

TEST(AdaptersForManagement, StopNoJob) {
    const std::vector<std::pair<const char*, void (*)(NodeFacts&)>> cases = {
        {"adapters' links", [](NodeFacts& node) { node.adapter_ports[2].state = "DOWN"; }},
        {"adapters' rates", [](NodeFacts& node) { node.adapter_ports[2].gigabits = 10; }}};
    for (const auto& [check, spoil] : cases) {
        Cluster cluster = managed_cluster();
        spoil(cluster.nodes[3]);
        const std::vector<Finding> findings = diagnose(cluster);
        const auto finding = std::ranges::find(findings, check, &Finding::check);
        ASSERT_NE(finding, findings.end()) << check;
        EXPECT_EQ(finding->severity, Severity::Warn) << check;
        EXPECT_EQ(finding->where, "n3");
        EXPECT_EQ(bad_nodes_of(findings), std::set<std::string>{}) << check;

        set_everywhere(cluster, kChoice, "=mlx5_0,mlx5_1,mlx5_2");
        EXPECT_EQ(bad_nodes_of(diagnose(cluster)), std::set<std::string>{"n3"}) << check;
    }
}

TEST(AdapterRates, BelowThoseOfEqualAdaptersMakeTheirNodeBad) {
    for (const int nodes : {3, 4}) {
        Cluster cluster = good_cluster(nodes);
        set_everywhere(cluster, kChoice, "mlx5");
        cluster.nodes[1].adapter_ports[0].gigabits = 100;
        const Finding finding = only_finding(cluster, "adapters' rates");
        EXPECT_EQ(finding.severity, Severity::Fail);
        EXPECT_EQ(finding.bad_nodes, Names{"n1"});
        expect_says(finding, {"mlx5_0 runs at 100 Gb/s, but at 400 on other nodes"});
    }
}

TEST(AdapterRates, BelowThoseOfJustAHalfAreAWarning) {
    for (const int half : {1, 2}) {
        Cluster cluster = good_cluster(2 * half);
        set_everywhere(cluster, kChoice, "mlx5");
        for (int node = 0; node < half; ++node) cluster.nodes[node].adapter_ports[0].gigabits = 200;
        const Finding finding = only_finding(cluster, "adapters' rates");
        EXPECT_EQ(finding.severity, Severity::Warn);
        EXPECT_EQ(finding.bad_nodes, Names{});
    }
}

TEST(AdapterRates, AboveThoseOfEqualAdaptersAreNoFault) {
    Cluster cluster = good_cluster(5);
    set_everywhere(cluster, kChoice, "mlx5");
    for (AdapterPort& port : cluster.nodes[1].adapter_ports) port.gigabits = 800;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(AdapterChoice, ThatIncludesStorageAdaptersGetsAWarning) {
    Cluster cluster = good_cluster();
    for (NodeFacts& node : cluster.nodes)
        node.adapter_ports.push_back(adapter_port("mlx5_10", "Ethernet", 100));
    set_everywhere(cluster, kChoice, "mlx5_0,mlx5_1");  // mlx5_1 means mlx5_10, too
    const Finding finding = only_finding(cluster, kChoice);
    EXPECT_EQ(finding.severity, Severity::Warn);
    expect_says(finding, {"Ethernet adapters beside InfiniBand", "set NCCL_IB_HCA==mlx5_0,mlx5_1"});
    set_everywhere(cluster, kChoice, "=mlx5_0,mlx5_1");
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(AdapterChoice, ThatIsMissingGetsAWarningIfAdaptersDiffer) {
    Cluster cluster = good_cluster();
    for (NodeFacts& node : cluster.nodes)
        node.adapter_ports.push_back(adapter_port("mlx5_2", "Ethernet", 400));
    expect_says(only_finding(cluster, kChoice), {"is not set", "set NCCL_IB_HCA==mlx5_0,mlx5_1"});
    for (NodeFacts& node : cluster.nodes) node.adapter_ports[2] = adapter_port("mlx5_2", "InfiniBand", 100);
    expect_says(only_finding(cluster, kChoice), {"is not set", "set NCCL_IB_HCA==mlx5_0,mlx5_1"});
    cluster.nodes.pop_back();
    std::erase_if(cluster.ranks, [](const RankFacts& rank) { return rank.node == "n1"; });
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});  // nothing leaves the node
}

TEST(AdapterChoice, MayLeaveOutAnEqualAdapter) {
    Cluster cluster = good_cluster();
    set_everywhere(cluster, kChoice, "mlx5_1");
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

}  // namespace
}  // namespace argosy::preflight
