#include "preflight/cluster.h"

namespace argosy::preflight {
namespace {

constexpr const char* kNccl = "NCCL_SOCKET_IFNAME";
constexpr const char* kMpi = "OMPI_MCA_btl_tcp_if_include";

Cluster choosing(const char* variable, const char* value, int num_nodes = 2) {
    Cluster cluster = good_cluster(num_nodes);
    set_everywhere(cluster, variable, value);
    return cluster;
}

TEST(Interfaces, ThatFitMakeNoFinding) {
    for (const char* value : {"eth0", "eth", "ib", "=ib0", "^docker0,lo", "ib0,eth0", ""}) {
        EXPECT_EQ(checks_of(diagnose(choosing(kNccl, value))), Names{}) << value;
    }
    for (const char* value : {"eth0", "10.0.0.0/8", "ib0,10.1.0.0/16"}) {
        EXPECT_EQ(checks_of(diagnose(choosing(kMpi, value))), Names{}) << value;
    }
}

TEST(Interfaces, ThatAreMissingFail) {
    EXPECT_EQ(only_finding(choosing(kNccl, "bond0"), kNccl).severity, Severity::Fail);
    EXPECT_EQ(only_finding(choosing(kNccl, "=eth"), kNccl).severity, Severity::Fail);
    EXPECT_EQ(only_finding(choosing(kNccl, "^eth,ib,docker,lo"), kNccl).severity, Severity::Fail);
    EXPECT_EQ(only_finding(choosing(kMpi, "eth"), kMpi).severity, Severity::Fail);  // MPI wants whole names
    EXPECT_EQ(only_finding(choosing("OMPI_MCA_oob_tcp_if_include", "bond0"), "OMPI_MCA_oob_tcp_if_include")
                  .bad_nodes,
              Names{});
}

TEST(Interfaces, MissingOnOneNodeNameTheNode) {
    Cluster cluster = choosing(kNccl, "ib0", 3);
    std::erase_if(cluster.nodes[2].interfaces,
                  [](const Interface& interface) { return interface.name == "ib0"; });
    const Finding finding = only_finding(cluster, kNccl);
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.where, "n2");
    EXPECT_EQ(finding.bad_nodes, Names{"n2"});
    expect_says(finding, {"NCCL_SOCKET_IFNAME=ib0 matches no interface"});
}

TEST(Interfaces, ThatAreDownMakeTheirNodeBad) {
    Cluster cluster = choosing(kNccl, "ib0", 3);
    cluster.nodes[1].interfaces[1].state = "down";
    const Finding finding = only_finding(cluster, kNccl);
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
    expect_says(finding, {"ib0 is down"});
}

TEST(Interfaces, OfWhichSomeAreUselessGetAWarning) {
    const Finding finding = only_finding(choosing(kNccl, "eth0,eth1,eth2"), kNccl);
    EXPECT_EQ(finding.severity, Severity::Warn);
    expect_says(finding, {"eth1 is down, eth2 is absent"});
}

TEST(Interfaces, WithinTheMachineGetAWarning) {
    for (const char* value : {"docker0", "lo"}) {
        const Finding finding = only_finding(choosing(kNccl, value), kNccl);
        EXPECT_EQ(finding.severity, Severity::Warn);
        expect_says(finding, {"does not leave the machine"});
        EXPECT_EQ(checks_of(diagnose(choosing(kNccl, value, 1))), Names{});
    }
    Cluster nodes_of_one_machine = choosing(kNccl, "lo");
    for (NodeFacts& node : nodes_of_one_machine.nodes) node.boot_id = "the same";
    EXPECT_EQ(checks_of(diagnose(nodes_of_one_machine)), Names{});
}

}  // namespace
}  // namespace argosy::preflight
