// What devices do under stress: results and rates.
#include <functional>

#include "preflight/cluster.h"
#include "preflight/diagnose.h"

namespace argosy::preflight {
namespace {

/// Four nodes with two H200 each, all of which multiply as a real one does at its power limit.
Cluster stressed_cluster(int num_nodes = 4) {
    Cluster cluster = good_cluster(num_nodes);
    for (RankFacts& rank : cluster.ranks) {
        rank.load = {.device = "NVIDIA H200",
                     .library = "cuBLAS 13.1.0",
                     .bus_id = "0000:3" + std::to_string(rank.rank % 2) + ":00.0",
                     .flops_per_second = 680e12 + 1e12 * (rank.rank % 3),
                     .hash = "00000000c0ffee00",
                     .num_products = 6000};
    }
    for (NodeFacts& node : cluster.nodes) {
        node.gpus[0].bus_id = "00000000:30:00.0";
        node.gpus[1].bus_id = "00000000:31:00.0";
    }
    return cluster;
}

TEST(Stress, OfHealthyDevicesHasNoFinding) {
    const Cluster cluster = stressed_cluster();
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
    EXPECT_EQ(checks_of(compare_stress(cluster, at::kBFloat16)), Names{});
}

TEST(Stress, ADeviceWithAnotherResultThanTheMajorityIsWrong) {
    Cluster cluster = stressed_cluster();
    cluster.ranks[5].load->hash = "00000000c0ffee01";
    const Finding finding = only_finding(cluster, "results of matrix products");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.where, "rank 5 on n2");
    EXPECT_EQ(finding.bad_nodes, Names{"n2"});
    expect_says(finding, {"GPU 0000:31:00.0 computes wrongly", "7 of 8", "NVIDIA H200"});
}

TEST(Stress, DevicesOfOtherKindsMayHaveOtherResults) {
    Cluster cluster = stressed_cluster();
    cluster.ranks[5].load->hash = cluster.ranks[6].load->hash = "00000000c0ffee01";
    cluster.ranks[5].load->library = "cuBLAS 12.9.1";
    cluster.ranks[6].load->device = "NVIDIA H100 80GB HBM3";
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(Stress, WithoutAMajorityNobodyKnowsWhichDeviceIsWrong) {
    Cluster cluster = stressed_cluster(1);
    cluster.ranks[1].load->hash = "00000000c0ffee01";
    const Finding finding = only_finding(cluster, "results of matrix products");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{});
    expect_says(finding, {"no result has a majority", "more of these nodes"});
}

TEST(Stress, ADeviceThatContradictsItselfIsWrong) {
    Cluster cluster = stressed_cluster();
    cluster.ranks[2].load->num_different = 3;
    cluster.ranks[2].load->hash = "00000000c0ffee01";
    const Finding finding = only_finding(cluster, "results of matrix products");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.where, "rank 2 on n1");
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
    expect_says(finding, {"GPU 0000:30:00.0", "3 of 6000"});
}

TEST(Stress, ADeviceSlowerThanItsKindIsNamed) {
    Cluster cluster = stressed_cluster();
    cluster.ranks[3].load->flops_per_second = 500e12;  // above half of the datasheet's
    auto findings = compare_stress(cluster, at::kBFloat16);
    ASSERT_EQ(checks_of(findings), Names{"sustained matrix products"});
    EXPECT_EQ(findings[0].severity, Severity::Fail);
    EXPECT_EQ(findings[0].where, "rank 3 on n1");
    EXPECT_EQ(findings[0].bad_nodes, Names{"n1"});
    expect_says(findings[0], {"500 TFLOP/s", "its kind"});

    for (RankFacts& rank : cluster.ranks) rank.load->bus_id.clear();
    EXPECT_EQ(checks_of(compare_stress(cluster, at::kBFloat16)), Names{}) << "on processors";
    cluster = stressed_cluster();
    cluster.ranks[3].load->flops_per_second = 500e12;
    cluster.ranks[3].load->device = "NVIDIA H100 80GB HBM3";  // the only one of its kind
    EXPECT_EQ(checks_of(compare_stress(cluster, at::kBFloat16)), Names{});
}

TEST(Stress, DevicesBelowHalfOfTheDatasheetsPeakAreNamed) {
    Cluster cluster = stressed_cluster(1);
    for (RankFacts& rank : cluster.ranks) rank.load->flops_per_second = 480e12;  // equally slow
    auto findings = compare_stress(cluster, at::kBFloat16);
    ASSERT_EQ(checks_of(findings), Names{"sustained matrix products"});
    EXPECT_EQ(findings[0].severity, Severity::Warn) << "perhaps by design";
    EXPECT_EQ(findings[0].bad_nodes, Names{});
    expect_says(findings[0], {"GPU 0000:30:00.0 of rank 0", "480 TFLOP/s", "49 %", "989"});

    cluster = stressed_cluster();
    for (RankFacts& rank : cluster.ranks) rank.load->flops_per_second = 480e12;
    findings = compare_stress(cluster, at::kBFloat16);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].severity, Severity::Warn);
    EXPECT_EQ(findings[0].where, "all ranks");
    EXPECT_EQ(findings[0].bad_nodes, Names{});

    for (RankFacts& rank : cluster.ranks) rank.load->device = "a GPU without a datasheet";
    EXPECT_EQ(checks_of(compare_stress(cluster, at::kBFloat16)), Names{});
}

/// All GPUs at their power limit, as nvidia-smi sees them during and after the stress.
Cluster watched_cluster(int num_nodes = 3) {
    Cluster cluster = stressed_cluster(num_nodes);
    for (NodeFacts& node : cluster.nodes) {
        node.gpus_after = node.gpus_under_load = node.gpus;
        for (Gpu& gpu : node.gpus_under_load) gpu.throttle_reasons = 0x4, gpu.pcie_generation = 5;
    }
    return cluster;
}

TEST(GpusUnderStress, AtTheirPowerLimitAreNoFault) {
    EXPECT_EQ(checks_of(diagnose(watched_cluster())), Names{});
}

TEST(GpusUnderStress, ThatHeatSlowsAreNamed) {
    for (const int64_t reasons : {0x20, 0x40, 0x48, 0x80, 0x44}) {
        Cluster cluster = watched_cluster();
        cluster.nodes[1].gpus_under_load[1].throttle_reasons = reasons;
        const Finding finding = only_finding(cluster, "GPU clocks under load");
        EXPECT_EQ(finding.severity, Severity::Fail);
        EXPECT_EQ(finding.bad_nodes, Names{"n1"});
        expect_says(finding, {"GPU 1: ", "lowers the clocks"});
    }
}

/// GPU 1 of n1 is a neighbour's on a shared node.
TEST(GpusUnderStress, ThatNoRankUsesAreNotChecked) {
    const std::vector<void (*)(NodeFacts&)> cases = {
        [](NodeFacts& node) { node.gpus[1].used_mebibytes = 70000; },
        [](NodeFacts& node) { node.gpus_under_load[1].throttle_reasons = 0x40; }};
    for (const auto& spoil : cases) {
        Cluster cluster = watched_cluster();
        spoil(cluster.nodes[1]);
        EXPECT_EQ(bad_nodes_of(diagnose(cluster)), std::set<std::string>{"n1"});
        cluster.ranks[3].load->bus_id = cluster.ranks[2].load->bus_id;
        EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
        for (RankFacts& rank : cluster.ranks) rank.load.reset();
        EXPECT_EQ(bad_nodes_of(diagnose(cluster)), std::set<std::string>{"n1"}) << "it may be the job's";
    }
}

TEST(UsedGpus, AreThoseThatCudaShowsBeforeAnyStress) {
    Cluster cluster = good_cluster(2);
    cluster.ranks[2].visible_gpus = VisibleGpus{.own = pci_address(cluster.nodes[1].gpus[0].bus_id)};
    const UsedGpus used(cluster.nodes[1], RanksByNode(cluster));
    EXPECT_TRUE(used.has(cluster.nodes[1].gpus[0]));
    EXPECT_FALSE(used.has(cluster.nodes[1].gpus[1]));
}

TEST(GpusUnderStress, WhoseErrorsGrowAreNamed) {
    Cluster cluster = watched_cluster();
    cluster.nodes[2].gpus_after[1].uncorrected_errors = 1;
    const Finding finding = only_finding(cluster, "GPU memory errors under load");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{"n2"});
    expect_says(finding, {"GPU 1: uncorrected"});

    cluster = watched_cluster();
    for (Gpu& gpu : cluster.nodes[0].gpus) gpu.uncorrected_errors.reset();  // a driver that does not say
    cluster.nodes[1].gpus_after.clear();
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(GpusUnderStress, WhoseLinkTrainsLowerAreNamed) {
    Cluster cluster = watched_cluster();
    cluster.nodes[1].gpus_under_load[1].pcie_generation = 4;
    const Finding finding = only_finding(cluster, "GPU PCIe link under load");
    EXPECT_EQ(finding.severity, Severity::Fail);
    EXPECT_EQ(finding.bad_nodes, Names{"n1"});
    expect_says(finding, {"GPU 1: uses generation 4 of 5"});

    cluster.ranks[3].load->bus_id = cluster.ranks[2].load->bus_id;  // no rank uses GPU 1 of n1
    EXPECT_EQ(checks_of(diagnose(cluster)), Names{});
}

TEST(NotChecked, NamesWhatCouldNotBeLookedAtAndWhy) {
    Cluster cluster = watched_cluster();
    EXPECT_EQ(not_checked(cluster), Names{});
    const std::vector<std::pair<std::function<void(Cluster&)>, const char*>> cases = {
        {[](Cluster& made) { made.nodes[1].has_nvidia_smi = false; }, "n1: there is no nvidia-smi in PATH"},
        {[](Cluster& made) { made.nodes[2].gpus[1].uncorrected_errors.reset(); },
         "memory errors of GPUs, n2"},
        {[](Cluster& made) { made.nodes[2].gpus[1].throttle_reasons.reset(); },
         "clocks that heat lowers, n2"},
        {[](Cluster& made) { made.nodes[0].gpus_out_of_time = true; },
         "GPUs, n0: nvidia-smi ran out of time"},
        {[](Cluster& made) {
             for (const int node : {0, 2, 2})
                 made.nodes[node].dcgm.push_back({"dcgmi", {}, "it is not in PATH"});
         },
         "dcgmi, n0, n2: it is not in PATH"},
        {[](Cluster& made) { made.nodes[0].gpus_under_load.clear(); }, "GPUs under load, n0: "},
        {[](Cluster& made) { made.nodes[0].dump_folder.reset(); }, "the dump folder, n0: "},
    };
    for (const auto& [spoil, expected] : cases) {
        Cluster made = cluster;
        spoil(made);
        const Names lines = not_checked(made);
        ASSERT_EQ(lines.size(), 1u) << expected;
        EXPECT_NE(lines[0].find(expected), std::string::npos) << lines[0];
    }
}

TEST(Stress, TravelsWithTheFacts) {
    const RankFacts rank = stressed_cluster().ranks[3];
    EXPECT_EQ(pack(unpack_rank(pack(rank))), pack(rank));
    EXPECT_EQ(unpack_rank(pack(rank)).load->hash, "00000000c0ffee00");
    EXPECT_FALSE(unpack_rank(pack(RankFacts{})).load);
    NodeFacts node;
    node.gpus_under_load = {good_gpu(3)};
    node.gpus_after = {good_gpu(4), good_gpu(5)};
    node.gpus_after[1].uncorrected_errors = 6;
    node = unpack_node(pack(node));
    EXPECT_EQ(node.gpus_under_load.at(0).bus_id, good_gpu(3).bus_id);
    EXPECT_EQ(node.gpus_after.at(1).uncorrected_errors, 6);
}

}  // namespace
}  // namespace argosy::preflight
