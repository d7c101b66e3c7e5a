// Settings that ranks start with: variables, and the interfaces that variables choose.
#include "preflight/cluster.h"

namespace argosy::preflight {
namespace {

struct VariableCase {
    const char* name;
    const char* value;
    Severity severity;
};

class CostlyVariable : public ::testing::TestWithParam<VariableCase> {};

TEST_P(CostlyVariable, IsFound) {
    Cluster cluster = good_cluster();
    set_everywhere(cluster, GetParam().name, GetParam().value);
    const Finding finding = only_finding(cluster, GetParam().name);
    EXPECT_EQ(finding.severity, GetParam().severity);
    EXPECT_EQ(finding.where, "all ranks");
    EXPECT_EQ(finding.bad_nodes, Names{});
    expect_says(finding, {std::string(GetParam().name) + "=" + GetParam().value + ": "});
}

INSTANTIATE_TEST_SUITE_P(
    Variables, CostlyVariable,
    ::testing::Values(VariableCase{"CUDA_LAUNCH_BLOCKING", "1", Severity::Fail},
                      VariableCase{"NCCL_DEBUG", "INFO", Severity::Warn},
                      VariableCase{"CUDA_DEVICE_MAX_CONNECTIONS", "1", Severity::Warn},
                      VariableCase{"NVIDIA_TF32_OVERRIDE", "0", Severity::Warn},
                      VariableCase{"NCCL_DEBUG", "Trace", Severity::Warn},
                      VariableCase{"NCCL_P2P_DISABLE", "1", Severity::Warn},
                      VariableCase{"NCCL_P2P_LEVEL", "LOC", Severity::Warn},
                      VariableCase{"NCCL_SHM_DISABLE", "1", Severity::Warn},
                      VariableCase{"NCCL_IB_DISABLE", "1", Severity::Fail},
                      VariableCase{"NCCL_NET", "Socket", Severity::Fail},
                      VariableCase{"NCCL_GRAPH_REGISTER", "1", Severity::Fail},
                      VariableCase{"NCCL_LAUNCH_ORDER_IMPLICIT", "0", Severity::Fail},
                      VariableCase{"NCCL_ALGO", "Ring", Severity::Warn},
                      VariableCase{"NCCL_PROTO", "Simple", Severity::Warn},
                      VariableCase{"NCCL_IB_GID_INDEX", "3", Severity::Warn},
                      VariableCase{"PYTORCH_NO_CUDA_MEMORY_CACHING", "1", Severity::Warn},
                      VariableCase{"PYTORCH_ALLOC_CONF", "expandable_segments:False", Severity::Warn},
                      VariableCase{"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:512", Severity::Warn},
                      VariableCase{"MALLOC_CHECK_", "3", Severity::Warn},
                      VariableCase{"MALLOC_PERTURB_", "165", Severity::Warn}));

class HarmlessVariable : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(HarmlessVariable, IsNotFound) {
    Cluster cluster = good_cluster();
    set_everywhere(cluster, GetParam().first, GetParam().second);
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

INSTANTIATE_TEST_SUITE_P(
    Variables, HarmlessVariable,
    ::testing::Values(std::pair("CUDA_LAUNCH_BLOCKING", "0"), std::pair("CUDA_LAUNCH_BLOCKING", ""),
                      std::pair("CUDA_DEVICE_MAX_CONNECTIONS", "8"), std::pair("NCCL_IB_GID_INDEX", "none"),
                      std::pair("NCCL_DEBUG", "WARN"), std::pair("NCCL_DEBUG", "VERSION"),
                      std::pair("NCCL_P2P_DISABLE", "0"), std::pair("NCCL_P2P_LEVEL", "NVL"),
                      std::pair("NCCL_IB_DISABLE", "0"), std::pair("NCCL_NET", "IB"),
                      std::pair("NCCL_ALGO", ""), std::pair("NCCL_GRAPH_REGISTER", "0"),
                      std::pair("NCCL_LAUNCH_ORDER_IMPLICIT", "1"), std::pair("NCCL_IB_GID_INDEX", "-1"),
                      std::pair("NCCL_MIN_CTAS", "32"), std::pair("NCCL_COLLNET_ENABLE", "0"),
                      std::pair("PYTORCH_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512"),
                      std::pair("MALLOC_CHECK_", "0")));

TEST(Variables, CountOnlyWhereTheyMatter) {
    Cluster one_node = good_cluster(1, 8);
    set_everywhere(one_node, "NCCL_IB_DISABLE", "1");
    set_everywhere(one_node, "NCCL_NET", "Socket");
    EXPECT_EQ(checks_of(diagnose(one_node)), Names{});

    Cluster without_fabric = good_cluster();
    for (NodeFacts& node : without_fabric.nodes) node.adapter_ports.clear();
    set_everywhere(without_fabric, "NCCL_IB_DISABLE", "1");
    EXPECT_EQ(checks_of(diagnose(without_fabric)), Names{});

    Cluster one_rank_a_node = good_cluster(4, 1);
    set_everywhere(one_rank_a_node, "NCCL_P2P_DISABLE", "1");
    set_everywhere(one_rank_a_node, "NCCL_SHM_DISABLE", "1");
    set_everywhere(one_rank_a_node, "NCCL_GRAPH_REGISTER", "1");
    EXPECT_EQ(checks_of(diagnose(one_rank_a_node)), Names{});
}

TEST(Variables, FromASettingsFileNameTheFile) {
    Cluster cluster = good_cluster();
    for (RankFacts& rank : cluster.ranks) rank.variables = {{"NCCL_ALGO", "Tree", "/etc/nccl.conf"}};
    expect_says(only_finding(cluster, "NCCL_ALGO"), {"NCCL_ALGO=Tree (in /etc/nccl.conf)"});
}

TEST(Variables, ThatWorkAroundFaultsOfAnH200GetAWarning) {
    Cluster cluster = good_cluster();
    set_everywhere(cluster, "NCCL_MIN_CTAS", "32");
    set_everywhere(cluster, "UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1");
    set_everywhere(cluster, "SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING", "1");
    set_everywhere(cluster, "NCCL_COLLNET_ENABLE", "0");
    set_everywhere(cluster, "NCCL_ALGO", "Ring");
    EXPECT_EQ(only_finding(cluster, "NCCL_ALGO").severity, Severity::Warn);
}

constexpr const char* kNccl = "NCCL_SOCKET_IFNAME";
constexpr const char* kMpi = "OMPI_MCA_btl_tcp_if_include";

Cluster choosing(const char* variable, const char* value, int num_nodes = 2) {
    Cluster cluster = good_cluster(num_nodes);
    set_everywhere(cluster, variable, value);
    return cluster;
}

TEST(Interfaces, ThatFitMakeNoFinding) {
    for (const char* value : {"eth0", "eth", "ib", "=ib0", "^docker0,lo", "ib0,eth0", "eth0,eth1,eth2", ""}) {
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

}  // namespace
}  // namespace argosy::preflight
