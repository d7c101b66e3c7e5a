// Measured collectives beside what a plan assumes of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/collective.h"
#include "plan/gpus.h"
#include "preflight/cluster.h"
#include "preflight/preflight.h"

namespace argosy::preflight {
namespace {

/// Two nodes of 8 H200.
Report measured(double share_of_plan, const char* device = "NVIDIA H200") {
    Report report{.type = at::kBFloat16, .why_not_measured = {}, .why_not_compared = {}};
    report.cluster = good_cluster(2, 8);
    for (int node = 0; node < 2; ++node) {
        report.nodes.push_back({.name = report.cluster.nodes[node].name, .ranks = {}});
        for (int i = 0; i < 8; ++i) report.nodes[node].ranks.push_back(8 * node + i);
    }
    report.speeds.devices.resize(16);
    for (cuda::Device& each : report.speeds.devices) each.name = device;
    const std::vector<int>&first = report.nodes[0].ranks, &second = report.nodes[1].ranks;
    std::vector<int> all = first;
    all.insert(all.end(), second.begin(), second.end());
    const auto add = [&](const char* collective, comm::OpKind op, std::vector<std::vector<int>> groups,
                         size_t bytes, double bandwidth) {
        const bench::Case kind{.collective = &bench::collective_named(collective),
                               .type = ElementType::BFloat16,
                               .bytes = bytes};
        const std::vector<double> rates(groups.size(), share_of_plan * bandwidth);
        report.speeds.operations.push_back({{"dp_shard", std::move(groups), kind, bytes, op}, rates});
    };
    // 80 % of the datasheets: NVLink has 450 GB/s, and a node's 8 adapters 50 GB/s each.
    add("all_gather", comm::OpKind::AllGather, {first, second}, 256 << 20, 360e9);
    add("all_gather", comm::OpKind::AllGather, {all}, 256 << 20, 300e9);
    add("all_reduce", comm::OpKind::AllReduce, {first, second}, 256 << 20, 360e9);
    add("alltoall", comm::OpKind::AllToAll, {first, second}, 256 << 20, 360e9);
    add("sendrecv", comm::OpKind::Send, {{0, 8}}, 256 << 20, 40e9);
    add("all_gather", comm::OpKind::AllGather, {first, second}, 1 << 20, 90e9);  // too small to be judged
    return report;
}

Job job() {
    return {
        .planned_links = [](const std::string& device, int ranks_per_node) -> std::optional<PlannedLinks> {
            const auto name = plan::gpu_of_device(device);
            if (!name) return std::nullopt;
            plan::Machine machine = plan::named_gpu(*name);
            machine.ranks_per_node = ranks_per_node;
            return PlannedLinks{*name, [machine](auto launch, const std::vector<int>& ranks) {
                                    return machine.seconds(launch, ranks);
                                }};
        }};
}

std::vector<Finding> findings_of_plan(Report& report) {
    set_planned(job(), report);
    return compare_with_plan(report.speeds, report.cluster);
}

TEST(CompareWithPlan, ComputesWhatAPlanAssumes) {
    Report report = measured(1);
    set_planned(job(), report);
    EXPECT_EQ(report.planned_gpu, "h200");
    const std::vector<OperationSpeed>& found = report.speeds.operations;
    EXPECT_NEAR(found[0].planned[0], 360e9, 0.03 * 360e9) << "2 us a hop";
    EXPECT_NEAR(found[1].planned[0], 300e9, 0.03 * 300e9) << "8 adapters of 40 GB/s carry 15/16 of it";
    EXPECT_NEAR(found[2].planned[0], 360e9, 0.03 * 360e9);
    EXPECT_NEAR(found[3].planned[0], 360e9, 0.03 * 360e9);
    EXPECT_NEAR(found[4].planned[0], 40e9, 0.03 * 40e9);
    EXPECT_LT(found[5].planned[0], 100e9);
}

TEST(CompareWithPlan, WarnsOfASlowerCluster) {
    Report fast = measured(0.85), slow = measured(0.7), one = measured(1);
    EXPECT_TRUE(findings_of_plan(fast).empty());
    const auto found = findings_of_plan(slow);
    ASSERT_EQ(found.size(), 5) << "all but the small one";
    for (const Finding& each : found) {
        EXPECT_EQ(each.severity, Severity::Warn);
        EXPECT_TRUE(each.bad_nodes.empty());
        EXPECT_NE(each.remedy.find("pretrain --search --links"), std::string::npos);
        EXPECT_NE(each.remedy.find("preflight --links"), std::string::npos);
    }
    EXPECT_EQ(found[0].check, "plan of all_gather over dp_shard");
    EXPECT_EQ(found[0].where, "all ranks");
    EXPECT_NE(found[0].what.find("bus bandwidth 252 GB/s is 7"), std::string::npos) << found[0].what;
    // One group of an operation.
    one.speeds.operations[2].bus_bandwidths[1] = 100e9;
    const auto of_one = findings_of_plan(one);
    ASSERT_EQ(of_one.size(), 1);
    EXPECT_EQ(of_one[0].where, "ranks 8-15 on n1");
    const std::string text = text_report(one);
    EXPECT_NE(text.find("a plan assumes 35"), std::string::npos) << text;
    EXPECT_NE(text.find("The plan is that of h200 (pretrain --plan --gpu h200)"), std::string::npos) << text;
    EXPECT_NE(json_report(one).find("\"share_of_plan\""), std::string::npos);
}

TEST(CompareWithPlan, SaysWhyThereIsNoPlan) {
    Report unknown = measured(0.1, "NVIDIA B300"), differ = measured(0.1), processors = measured(0.1),
           cyclic = measured(0.1);
    differ.speeds.devices[3].name = "NVIDIA H100 80GB HBM3";
    processors.speeds.devices.clear();
    for (int i = 0; i < 16; ++i) cyclic.nodes[i % 2].ranks[i / 2] = i;
    for (const auto& [report, reason] :
         {std::pair(&unknown, "plans do not know NVIDIA B300"), std::pair(&differ, "a plan is of equal GPUs"),
          std::pair(&processors, "a plan measures a processor's links itself"),
          std::pair(&cyclic, "a plan takes the ranks of a node to be adjacent")}) {
        EXPECT_TRUE(findings_of_plan(*report).empty());
        EXPECT_EQ(report->planned_gpu, "");
        EXPECT_NE(text_report(*report).find(std::string("not compared with a plan: ") + reason),
                  std::string::npos)
            << text_report(*report);
    }
}

TEST(CompareWithPlan, KnowsTheNamesOfDrivers) {
    EXPECT_EQ(plan::gpu_of_device("NVIDIA H100 80GB HBM3"), "h100");
    EXPECT_EQ(plan::gpu_of_device("NVIDIA A100-SXM4-40GB"), "a100");
    EXPECT_EQ(plan::gpu_of_device("NVIDIA B200"), "b200");
    EXPECT_EQ(plan::gpu_of_device("NVIDIA GeForce RTX 4090"), "rtx4090");
    for (const char* other :
         {"NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA GB200", "NVIDIA GH200 480GB", "Tesla V100-SXM2",
          "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"})
        EXPECT_EQ(plan::gpu_of_device(other), std::nullopt) << other;
}

}  // namespace
}  // namespace argosy::preflight
