#include "preflight/cluster.h"

namespace argosy::preflight {
namespace {

struct GpuCase {
    const char* check;
    void (*spoil)(Gpu&);
    Severity severity;
    const char* words;
};

class BadGpu : public ::testing::TestWithParam<GpuCase> {};

TEST_P(BadGpu, IsFound) {
    Cluster cluster = good_cluster(3);
    GetParam().spoil(cluster.nodes[1].gpus[1]);
    const Finding finding = only_finding(cluster, GetParam().check);
    EXPECT_EQ(finding.severity, GetParam().severity);
    EXPECT_EQ(finding.where, "n1");
    EXPECT_EQ(finding.bad_nodes, GetParam().severity == Severity::Fail ? Names{"n1"} : Names{});
    expect_says(finding, {GetParam().words});
}

INSTANTIATE_TEST_SUITE_P(
    Gpus, BadGpu,
    ::testing::Values(
        GpuCase{"GPU clocks", [](Gpu& gpu) { gpu.throttle_reasons = 0x48; }, Severity::Fail,
                "GPU 1: heat lowers the clocks"},
        GpuCase{"GPU clocks", [](Gpu& gpu) { gpu.throttle_reasons = 0x20; }, Severity::Fail, "heat"},
        GpuCase{"GPU clocks", [](Gpu& gpu) { gpu.throttle_reasons = 0x88; }, Severity::Fail,
                "the power brake"},
        GpuCase{"GPU memory errors", [](Gpu& gpu) { gpu.uncorrected_errors = 2; }, Severity::Warn,
                "GPU 1: 2 uncorrected"},
        GpuCase{"GPU PCIe link", [](Gpu& gpu) { gpu.pcie_lanes = 8; }, Severity::Fail, "8 of 16 PCIe lanes"},
        GpuCase{"GPU memory in use", [](Gpu& gpu) { gpu.used_mebibytes = 70000; }, Severity::Fail,
                "about 68 GiB"},
        GpuCase{"MIG", [](Gpu& gpu) { gpu.mig_mode = "Enabled"; }, Severity::Warn, "MIG divides the GPU"}));

TEST(Gpus, WithoutFactsMakeNoNodeBad) {
    Cluster cluster = good_cluster();
    for (NodeFacts& node : cluster.nodes) node.gpus = {Gpu{.driver = "580"}, Gpu{.driver = "580"}};
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(Gpus, AtRestOrAtTheirPowerLimitAreNoFault) {
    for (const int64_t reasons : {0x0, 0x1, 0x2, 0x4, 0x8, 0x10}) {
        Cluster cluster = good_cluster();
        cluster.nodes[0].gpus[0].throttle_reasons = reasons;
        EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    }
}

TEST(Gpus, WithEqualFaultsAreOneFinding) {
    Cluster cluster = good_cluster(20);
    for (NodeFacts& node : cluster.nodes) {
        for (Gpu& gpu : node.gpus) gpu.mig_mode = "Enabled";
    }
    const Finding finding = only_finding(cluster, "MIG");
    EXPECT_EQ(finding.where, "all nodes");
    expect_says(finding, {"GPU 0, 1: "});
}

/// A slot of eight lanes on every node must not stop all jobs.
TEST(Gpus, ThatAreSlowByDesignMakeNoNodeBad) {
    Cluster cluster = good_cluster(4);
    for (int node = 0; node < 2; ++node) cluster.nodes[node].gpus[0].pcie_lanes = 8;
    EXPECT_EQ(only_finding(cluster, "GPU PCIe link").bad_nodes, (Names{"n0", "n1"}));
    cluster.nodes[2].gpus[0].pcie_lanes = 8;
    const Finding finding = only_finding(cluster, "GPU PCIe link");
    EXPECT_EQ(finding.severity, Severity::Warn);
    EXPECT_TRUE(finding.bad_nodes.empty());
    expect_says(finding, {"perhaps by design"});

    cluster = good_cluster(4);
    for (int node = 0; node < 4; ++node) cluster.nodes[node].gpus[node % 2].pcie_lanes = 8;
    for (const Finding& each : diagnose(cluster)) EXPECT_EQ(each.severity, Severity::Warn) << each.what;
}

TEST(Gpus, OfASiteThatWantsNoFailGetAWarning) {
    Cluster cluster = good_cluster(3);
    cluster.nodes[1].gpus[0].pcie_lanes = 8;
    cluster.nodes[1].gpus[1].used_mebibytes = 70000;
    std::vector<Finding> findings = diagnose(cluster);
    only_warn({"GPU PCIe link", "MIG"}, findings);
    ASSERT_EQ(checks_of(findings), (Names{"GPU PCIe link", "GPU memory in use"}));
    EXPECT_EQ(findings[0].severity, Severity::Warn);
    EXPECT_TRUE(findings[0].bad_nodes.empty());
    EXPECT_EQ(findings[1].severity, Severity::Fail);
}

TEST(Gpus, ThatAreMissingMakeTheirNodeBad) {
    Cluster cluster = good_cluster(3);
    cluster.nodes[2].gpus.pop_back();
    const Finding finding = only_finding(cluster, "number of GPUs");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{"n2"});
    expect_says(finding, {"1, but 2 on other nodes"});
    cluster.nodes[2].gpus.resize(3, good_gpu(2));
    EXPECT_EQ(only_finding(cluster, "number of GPUs").severity, Severity::Warn);
}

TEST(Gpus, ThatOnlyHalfOfTheNodesHaveAreAWarning) {
    for (const int half : {1, 2}) {
        Cluster cluster = good_cluster(2 * half);
        for (int node = 0; node < half; ++node) cluster.nodes[node].gpus.pop_back();
        const Finding finding = only_finding(cluster, "number of GPUs");
        EXPECT_EQ(finding.severity, Severity::Warn);
        EXPECT_EQ(finding.bad_nodes, Names{});
        expect_says(finding, {"1, but 2 on other nodes"});
    }
}

TEST(Gpus, ThatDifferGetAWarning) {
    Cluster cluster = good_cluster(3);
    for (Gpu& gpu : cluster.nodes[0].gpus) gpu.name = "NVIDIA H100";
    const Finding finding = only_finding(cluster, "GPU models");
    EXPECT_EQ(finding.severity, Severity::Warn);
    EXPECT_EQ(finding.where, "n0");
    expect_says(finding, {"'NVIDIA H100', but most GPUs have 'NVIDIA H200'"});
}

TEST(GpuAnswers, ThatDoNotComeMakeTheirNodeBad) {
    Cluster cluster = good_cluster();
    cluster.nodes[1].gpus_hang = true;
    const Finding finding = only_finding(cluster, "nvidia-smi");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});

    cluster = good_cluster();
    cluster.nodes[1].gpus_hang_under_load = true;
    cluster.nodes[1] = unpack_node(pack(cluster.nodes[1]));
    EXPECT_EQ(only_finding(cluster, "nvidia-smi").bad_nodes, Names{"n1"});
    expect_says(only_finding(cluster, "nvidia-smi"), {"does not answer while the GPUs multiply"});
}

/// As of a healthy nvidia-smi without persistence mode, which is slow.
TEST(GpuAnswers, ThatAreSlowAreNoFinding) {
    Cluster cluster = good_cluster(3);
    cluster.nodes[1].gpus_out_of_time = true;
    cluster.nodes[1].gpus.clear();
    cluster.nodes[1] = unpack_node(pack(cluster.nodes[1]));
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{}) << "the number of GPUs is unknown";
    cluster.nodes[1].gpus_out_of_time = false;
    EXPECT_EQ(only_finding(cluster, "number of GPUs").bad_nodes, Names{"n1"});
}

TEST(GpuAnswers, ThatAreRefusedGetAWarningButALostGpuFails) {
    Cluster cluster = good_cluster();
    cluster.nodes[1].gpus_problem = "it exits with 9: NVIDIA-SMI has failed";
    EXPECT_EQ(only_finding(cluster, "nvidia-smi").severity, Severity::Warn);
    cluster.nodes[1].gpus_problem = "it says: Unable to determine the device handle for GPU 0000:3B:00.0";
    EXPECT_EQ(only_finding(cluster, "nvidia-smi").bad_nodes, Names{"n1"});
}

TEST(GpuAnswers, ThatAreHarmlessHideNoLaterOne) {
    Cluster cluster = good_cluster();
    NodeFacts& node = cluster.nodes[1];
    node.add_gpus_problem("", "it exits with 2: a field");
    node.add_gpus_problem("under load, ", "");
    node.add_gpus_problem("under load, ", "it exits with 2: a field");
    EXPECT_EQ(node.gpus_problem, "it exits with 2: a field");
    node.add_gpus_problem("after the load, ", "it says: GPU is lost");
    EXPECT_EQ(node.gpus_problem, "it exits with 2: a field; after the load, it says: GPU is lost");
    EXPECT_EQ(only_finding(cluster, "nvidia-smi").bad_nodes, Names{"n1"});
}

}  // namespace
}  // namespace argosy::preflight
