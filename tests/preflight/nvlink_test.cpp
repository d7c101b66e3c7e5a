// NVLink: its links, and the health of its fabric.
#include "preflight/cluster.h"
#include "preflight/read_facts.h"
#include "preflight/tree.h"

namespace argosy::preflight {
namespace {

TEST(Nvlinks, AreReadFromNvidiaSmi) {
    const Tree tree;
    tree.put_nvidia_smi(R"(
gpu() { echo "00000000:$1:00.0, NVIDIA H200, 580.65.06, 345, 1980, 0x1, 0, 16, 16, 1, 5, 4, 143771, Default, \
Disabled, Enabled, $2, Completed, Success, 0, 0, 0"; }
case "$*" in
--query-gpu=*) gpu 1B GPU-1b; gpu 43 GPU-43; gpu 52 GPU-52; gpu 61 GPU-61 ;;
"nvlink --status") cat <<END ;;
GPU 0: NVIDIA H200 (UUID: GPU-1b)
	 Link 0: 26.562 GB/s
	 Link 1: <inactive>
	 Link 2: 1.562 GB/s
GPU 1: NVIDIA H200 (UUID: GPU-43)
NVML: Unable to retrieve NVLink information as all links are inActive
GPU 2: NVIDIA H200 (UUID: GPU-5)
	 Link 0: 26.562 GB/s
GPU 3: NVIDIA H200 (UUID: GPU-61)
Device does not have or support Nvlink
END
-q) cat <<END ;;
Attached GPUs                             : 4
GPU 00000000:1B:00.0
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 0
        ClusterUUID                       : 00000000-0000-0000-0000-000000000000
        Health
            Summary                       : Limited Capacity
            Bandwidth                     : Degraded
            Route Recovery in progress    : False
            Route Unhealthy               : False
            Access Timeout Recovery       : False
            Incorrect Configuration       : None
    Processes                             : None
GPU 00000000:43:00.0
    Bandwidth                             : Degraded
    Fabric
        Health
            Summary                       : Healthy
            Bandwidth                     : Full
            Access Timeout Recovery       : N/A
    Processes                             : None
        Summary                           : Unhealthy
END
esac
)");
    const auto gpus = look_at_gpus(tree.sources()).gpus;
    ASSERT_EQ(gpus.size(), 4);
    EXPECT_EQ(gpus[0].active_nvlinks, 2);
    EXPECT_NEAR(gpus[0].nvlink_gigabytes, 28.124, 1e-9);
    EXPECT_EQ(gpus[1].active_nvlinks, 0);
    EXPECT_EQ(gpus[2].active_nvlinks, std::nullopt) << "a UUID that only begins alike";
    EXPECT_EQ(gpus[3].active_nvlinks, std::nullopt);
    EXPECT_EQ(gpus[0].fabric_problem, "Summary: Limited Capacity, Bandwidth: Degraded");
    EXPECT_EQ(gpus[1].fabric_problem, "");
}

/// As the driver 580 prints it for one H200 in a virtual machine.
TEST(Nvlinks, ThatAreNotAvailableAreNoFinding) {
    const Tree tree;
    tree.put_nvidia_smi(R"(
case "$*" in
--query-gpu=*) echo "00000000:01:00.0, NVIDIA H200, 580.65.06, 345, 1980, 0x1, 0, 16, 16, 1, 5, 4, 143771, Default, \
Disabled, Enabled, GPU-01d0ac5f, N/A, N/A, N/A, N/A, 0" ;;
-q) cat <<END ;;
Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA H200
    GPU UUID                              : GPU-01d0ac5f
    GPU Fabric GUID                       : N/A
    PCI
        Replays Since Reset               : 0
    Fabric
        State                             : N/A
        Status                            : N/A
        CliqueId                          : N/A
        ClusterUUID                       : N/A
        Health
            Summary                       : N/A
            Bandwidth                     : N/A
            Route Recovery in progress    : N/A
            Route Unhealthy               : N/A
            Access Timeout Recovery       : N/A
            Incorrect Configuration       : N/A
        Partition Assigned                : N/A
    Processes                             : None
END
esac
)");
    const GpuAnswer answer = look_at_gpus(tree.sources());
    EXPECT_EQ(answer.problem, "");
    ASSERT_EQ(answer.gpus.size(), 1);
    const Gpu& gpu = answer.gpus[0];
    EXPECT_EQ(gpu.pcie_replays, 0) << "the line about the GUID begins no other GPU";
    EXPECT_EQ(gpu.fabric_state + gpu.fabric_status + gpu.fabric_domain + gpu.fabric_clique, "");
    EXPECT_EQ(gpu.fabric_problem, "");
    EXPECT_EQ(gpu.active_nvlinks, std::nullopt);
    Cluster cluster = good_cluster(1);
    cluster.nodes[0].gpus = cluster.nodes[0].gpus_after = {gpu};
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

/// All links of all GPUs are active.
Cluster linked_cluster(int num_nodes) {
    Cluster cluster = good_cluster(num_nodes);
    for (NodeFacts& node : cluster.nodes) {
        for (Gpu& gpu : node.gpus) gpu.active_nvlinks = 18, gpu.nvlink_gigabytes = 18 * 26.562;
    }
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    return cluster;
}

TEST(Nvlinks, ThatAreDownFailTheirNode) {
    for (const int num_nodes : {2, 5}) {
        Cluster cluster = linked_cluster(num_nodes);
        cluster.nodes[1].gpus[1].active_nvlinks = 17;
        cluster.nodes[1] = unpack_node(pack(cluster.nodes[1]));
        const Finding finding = only_finding(cluster, "NVLinks");
        EXPECT_EQ(finding.severity, Severity::Fail);
        EXPECT_EQ(finding.bad_nodes, Names{"n1"});
        expect_says(finding, {"GPU 1: 17 NVLinks are active, but 18 on most GPUs"});
    }
    Cluster cluster = linked_cluster(3);
    for (Gpu& gpu : cluster.nodes[2].gpus) gpu.nvlink_gigabytes = 400;
    expect_says(only_finding(cluster, "NVLinks"), {"GPU 0, 1: its NVLinks carry 400 GB/s, but 478 on"});
}

TEST(Nvlinks, AreComparedWithLikeGpusOnly) {
    Cluster cluster = linked_cluster(3);
    for (NodeFacts& node : cluster.nodes) {
        for (Gpu& gpu : node.gpus) gpu.fabric_state = gpu.fabric_status = "";
        node.gpus[1].active_nvlinks = 0, node.gpus[1].nvlink_gigabytes = 0;
    }
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{}) << "no bridge on this GPU, by design";
    cluster.nodes[0].gpus[1].active_nvlinks = 4;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{}) << "one node has more";
    cluster = linked_cluster(3);
    for (Gpu& gpu : cluster.nodes[0].gpus) gpu.active_nvlinks.reset();
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{}) << "unknown";

    cluster = linked_cluster(1);
    cluster.nodes[0].gpus.push_back(cluster.nodes[0].gpus[0]);
    cluster.nodes[0].gpus[1].active_nvlinks = 0;
    Finding finding = only_finding(cluster, "NVLinks");
    EXPECT_EQ(finding.bad_nodes, Names{"n0"}) << "switches connect all of its GPUs";
    expect_says(finding, {"GPU 1: 0 NVLinks are active, but 18 on most GPUs of the node"});
    for (const int num_nodes : {1, 2}) {
        cluster = linked_cluster(num_nodes);
        for (NodeFacts& node : cluster.nodes) {
            node.gpus.push_back(node.gpus[0]);
            for (Gpu& gpu : node.gpus) gpu.fabric_state = gpu.fabric_status = "";
        }
        cluster.nodes[0].gpus[1].active_nvlinks = 0;
        finding = only_finding(cluster, "NVLinks");
        EXPECT_EQ(finding.severity, Severity::Warn) << "perhaps without a bridge, by design";
    }
}

TEST(Nvlinks, FailOnlyWhereAMajorityShowsWhatIsUsual) {
    const auto finding_for = [](std::vector<int64_t> links, bool switches) {
        Cluster cluster = linked_cluster(static_cast<int>(links.size()));
        for (size_t node = 0; node < links.size(); ++node) {
            std::vector<Gpu>& gpus = cluster.nodes[node].gpus;
            gpus.resize(1);
            gpus[0].active_nvlinks = links[node];
            gpus[0].nvlink_gigabytes = 25.0 * static_cast<double>(links[node]);
            if (!switches) gpus[0].fabric_state = gpus[0].fabric_status = "";
        }
        return only_finding(cluster, "NVLinks");
    };
    for (const bool switches : {false, true}) {
        EXPECT_EQ(finding_for({4, 2, 4, 2}, switches).severity, Severity::Warn) << "two with a bridge";
        EXPECT_EQ(finding_for({4, 2}, switches).severity, Severity::Warn);
        EXPECT_EQ(finding_for({4, 8, 12}, switches).severity, Severity::Warn);
        EXPECT_EQ(finding_for({4, 2, 4}, switches).bad_nodes, Names{"n1"});
        EXPECT_EQ(finding_for({4, 4, 4, 2, 2}, switches).bad_nodes, (Names{"n3", "n4"}));
    }
}

TEST(Nvlinks, ThatAreLostUnderLoadFailTheirNode) {
    Cluster cluster = linked_cluster(3);
    for (NodeFacts& node : cluster.nodes) node.gpus_after = node.gpus;
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    Cluster lost = cluster;
    lost.nodes[2].gpus_after[1].active_nvlinks = 17;
    lost.nodes[2] = unpack_node(pack(lost.nodes[2]));
    Finding finding = only_finding(lost, "NVLinks under load");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{"n2"});
    expect_says(finding, {"GPU 1: 17 NVLinks are active after the load, but 18 were before"});

    for (NodeFacts& node : cluster.nodes) node.gpus_after[0].fabric_problem = "Bandwidth: Degraded";
    finding = only_finding(cluster, "NVLinks under load");
    EXPECT_EQ(finding.bad_nodes, (Names{"n0", "n1", "n2"})) << "not by design";
    expect_says(finding, {"GPU 0: Bandwidth: Degraded after the load, but not before"});
    for (NodeFacts& node : cluster.nodes) {
        node.gpus[0].fabric_problem = "Bandwidth: Degraded";
        node.gpus[1].active_nvlinks.reset();
    }
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{"NVLinks"});
}

TEST(Nvlinks, OfADegradedFabricFailUnlessMostAreSo) {
    Cluster cluster = linked_cluster(3);
    for (Gpu& gpu : cluster.nodes[1].gpus) gpu.fabric_problem = "Bandwidth: Degraded";
    Finding finding = only_finding(cluster, "NVLinks");
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
    expect_says(finding, {"GPU 0, 1: Bandwidth: Degraded"});
    cluster.nodes[0].gpus[0].fabric_problem = cluster.nodes[2].gpus[0].fabric_problem = "Bandwidth: Degraded";
    EXPECT_EQ(worst_severity(diagnose(cluster)), Severity::Warn);
}

}  // namespace
}  // namespace argosy::preflight
