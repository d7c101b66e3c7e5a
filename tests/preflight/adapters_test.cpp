#include "preflight/cluster.h"

namespace argosy::preflight {
namespace {

constexpr const char *kChoice = "NCCL_IB_HCA", *kUcxChoice = "UCX_NET_DEVICES";

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
    for (const auto& [variable, value] : {std::pair{kChoice, "mlx5_0,mlx5_1"}, {kUcxChoice, "mlx5_1:1"}}) {
        Cluster cluster = good_cluster();
        for (NodeFacts& node : cluster.nodes) node.adapter_ports[1].state = "INIT";
        set_everywhere(cluster, variable, value);
        const Finding finding = only_finding(cluster, "adapters' links");
        EXPECT_EQ(finding.severity, Severity::Fail);
        EXPECT_EQ(finding.where, "all nodes");
    }
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
        {"adapters' rates", [](NodeFacts& node) { node.adapter_ports[2].gigabits = 10; }},
        {"adapters' errors",
         [](NodeFacts& node) { ++node.adapter_ports_after->at(2).counters["link_downed"]; }}};
    for (const auto& [check, spoil] : cases) {
        Cluster cluster = managed_cluster();
        for (NodeFacts& node : cluster.nodes) node.adapter_ports_after = node.adapter_ports;
        spoil(cluster.nodes[3]);
        const std::vector<Finding> findings = diagnose(cluster);
        const auto finding = std::ranges::find(findings, check, &Finding::check);
        ASSERT_NE(finding, findings.end()) << check;
        EXPECT_EQ(finding->severity, Severity::Warn) << check;
        EXPECT_EQ(finding->where, "n3");
        EXPECT_EQ(bad_nodes_of(findings), std::set<std::string>{}) << check;

        for (const auto& [variable, value] :
             {std::pair{kChoice, "=mlx5_0,mlx5_1,mlx5_2"}, {kUcxChoice, "mlx5_2:1"}}) {
            Cluster named = cluster;
            set_everywhere(named, variable, value);
            EXPECT_EQ(bad_nodes_of(diagnose(named)), std::set<std::string>{"n3"}) << check << variable;
        }
    }
}

TEST(Adapters, ThatAreMissingMakeTheirNodeBad) {
    for (const char* choice : {"", "mlx5", "^hfi1"}) {
        Cluster cluster = good_cluster(5);
        if (*choice) set_everywhere(cluster, kChoice, choice);
        cluster.nodes[3].adapter_ports.erase(cluster.nodes[3].adapter_ports.begin());
        const Finding finding = only_finding(cluster, "number of adapters");
        EXPECT_EQ(finding.severity, Severity::Fail);
        EXPECT_EQ(finding.bad_nodes, Names{"n3"});
        expect_says(finding, {"1 ports for data, but 2 on other nodes; it lacks mlx5_0"});
    }
}

TEST(Adapters, ThatOnlyHalfOfTheNodesHaveAreAWarning) {
    for (const int half : {1, 2}) {
        Cluster cluster = good_cluster(2 * half);
        for (int node = 0; node < half; ++node) cluster.nodes[node].adapter_ports.pop_back();
        const Finding finding = only_finding(cluster, "number of adapters");
        EXPECT_EQ(finding.severity, Severity::Warn);
        EXPECT_EQ(finding.bad_nodes, Names{});
        expect_says(finding, {"it lacks mlx5_1"});
    }
}

TEST(Adapters, MayHaveOtherNamesOnANodeOrBeUnused) {
    Cluster cluster = good_cluster(3);
    cluster.nodes[1].adapter_ports[1].adapter = "ibp1";
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    cluster.nodes[1].adapter_ports.pop_back();
    set_everywhere(cluster, kChoice, "mlx5_0");
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});

    cluster = good_cluster(3);
    for (const int node : {0, 1})
        cluster.nodes[node].adapter_ports.push_back(adapter_port("mlx5_2", "Ethernet", 25));
    for (RankFacts& rank : cluster.ranks) set_variable(rank, kChoice, rank.node == "n2" ? "^mlx5_1" : "");
    for (const Finding& finding : diagnose(cluster)) EXPECT_NE(finding.check, "number of adapters");
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

TEST(AdapterCounters, ThatGrowAreNamed) {
    Cluster cluster = good_cluster(3);
    for (NodeFacts& node : cluster.nodes) node.adapter_ports_after = node.adapter_ports;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    for (const int node : {1, 2})
        cluster.nodes[node].adapter_ports_after->at(1).counters["packet_seq_err"] = 170;
    Finding finding = only_finding(cluster, "adapters' errors");
    EXPECT_EQ(finding.severity, Severity::Warn);
    EXPECT_EQ(finding.where, "n1, n2");
    expect_says(finding, {"packet_seq_err of mlx5_1", "by at least 100 "});

    for (NodeFacts& node : cluster.nodes) node.adapter_ports_after = node.adapter_ports;
    cluster.nodes[0].adapter_ports_after->at(0).counters["link_downed"] = 2;
    finding = only_finding(cluster, "adapters' errors");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{"n0"});
    expect_says(finding, {"link_downed of mlx5_0", "by at least 1 "});
}

TEST(AdaptersAfterTheStress, MustStillBeThereAndActive) {
    const std::vector<std::pair<void (*)(std::vector<AdapterPort>&), const char*>> cases = {
        {[](std::vector<AdapterPort>& ports) { ports.pop_back(); },
         "mlx5_1 was ACTIVE before the load, and is gone"},
        {[](std::vector<AdapterPort>& ports) {
             ports[1].state = "INIT";
             ++ports[1].counters["link_downed"];
         },
         "mlx5_1 was ACTIVE before the load, and is INIT / LinkUp"}};
    for (const auto& [spoil, words] : cases) {
        Cluster cluster = good_cluster(3);
        for (NodeFacts& node : cluster.nodes) node.adapter_ports_after = node.adapter_ports;
        spoil(*cluster.nodes[1].adapter_ports_after);
        const Finding finding = only_finding(cluster, "adapters' links under load");
        EXPECT_EQ(finding.severity, Severity::Fail);
        EXPECT_EQ(finding.bad_nodes, Names{"n1"});
        expect_says(finding, {words});
        set_everywhere(cluster, kChoice, "mlx5_0");
        EXPECT_EQ(checks_of(diagnose(cluster)), Names{}) << "it is not used";
    }
    Cluster cluster = good_cluster(3);
    for (NodeFacts& node : cluster.nodes) node.adapter_ports_after.emplace();
    EXPECT_EQ(bad_nodes_of(diagnose(cluster)).size(), 3u) << "all are gone";
}

TEST(AdapterCounters, ThatAreResetOrUnusedAreNoFault) {
    Cluster cluster = good_cluster();
    for (NodeFacts& node : cluster.nodes) node.adapter_ports_after = node.adapter_ports;
    cluster.nodes[0].adapter_ports_after->at(0).counters["symbol_error"] = 0;
    cluster.nodes[0].adapter_ports_after->at(0).counters["a_new_one"] = 5;
    cluster.nodes[1].adapter_ports_after->at(1).counters["symbol_error"] = 9;
    set_everywhere(cluster, "NCCL_IB_HCA", "mlx5_0");
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

}  // namespace
}  // namespace argosy::preflight
