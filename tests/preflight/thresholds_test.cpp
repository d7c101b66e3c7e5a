// The limits of speeds, as a site moves them.
#include "preflight/thresholds.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "bench/collective.h"
#include "expect_error.h"
#include "preflight/cluster.h"
#include "preflight/compare_speeds.h"

namespace argosy::preflight {
namespace {

TEST(Threshold, IsSetByItsName) {
    Thresholds thresholds;
    set_threshold("peers=0.6", thresholds);
    set_threshold("line-fail=1", thresholds);
    EXPECT_EQ(thresholds.peers, 0.6);
    EXPECT_EQ(thresholds.line_fail, 1);
    EXPECT_EQ(thresholds.line, Thresholds{}.line);
}

TEST(Threshold, ThatMeansNothingIsRefused) {
    Thresholds thresholds;
    EXPECT_ERROR(set_threshold("peer=0.6", thresholds), UserError, "--threshold peer=0.6",
                 "there are peers, line, line-fail, nvlink, peak, pcie, clocks");
    EXPECT_ERROR(set_threshold("", thresholds), UserError, "there are peers");
    for (const char* setting : {"line", "line=", "line=x", "line=0", "line=-1", "line=1.1", "line=nan"})
        EXPECT_ERROR(set_threshold(setting, thresholds), UserError,
                     "write line=SHARE, above 0 and at most 1");
    EXPECT_ERROR(set_threshold("peers=0.8", thresholds), UserError, "at most 0.75");
}

/// Four nodes of two H200, of which node 1 is slow in all ways.
struct SlowNode {
    Cluster cluster = good_cluster(4);
    Speeds speeds{.products = std::vector<double>(8, 700e12),
                  .nodes = {90e9, 60e9, 90e9, 90e9},
                  .devices = std::vector<cuda::Device>(8)};

    SlowNode() {
        speeds.products[2] = 490e12;  // 70 % of the others
        const bench::Case kind{.collective = &bench::collective_named("all_gather"), .bytes = 64 << 20};
        speeds.operations = {
            {{"dp_shard", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, kind, 0}, {200e9, 200e9, 200e9, 200e9}}};
        for (RankFacts& rank : cluster.ranks) {
            rank.stress = {.device = "NVIDIA H200",
                           .bus_id = "0000:3" + std::to_string(rank.rank % 2) + ":00.0",
                           .flops_per_second = 480e12,
                           .hash = "00000000c0ffee00",
                           .bytes_to_device = 30e9,
                           .bytes_to_host = 54e9};
        }
        for (NodeFacts& node : cluster.nodes) {
            for (size_t i = 0; i < node.gpus.size(); ++i)
                node.gpus[i].bus_id = "00000000:3" + std::to_string(i) + ":00.0";
            node.gpus_under_stress = node.gpus;
            for (Gpu& gpu : node.gpus_under_stress) gpu.sm_megahertz = 1400;
        }
        cluster.nodes[1].gpus_under_stress[0].sm_megahertz = 1100;
    }

    /// The levels of the findings called `check`.
    std::vector<Severity> levels(const std::string& check) const {
        std::vector<Finding> findings = diagnose(cluster);
        append(compare_speeds(speeds, cluster), findings);
        append(compare_stress(cluster, at::kBFloat16), findings);
        append(compare_with_fabric(speeds, cluster), findings);
        std::vector<Severity> found;
        for (const Finding& finding : findings) {
            if (finding.check == check) found.push_back(finding.severity);
        }
        return found;
    }
};

TEST(Threshold, DecidesWhatIsAFinding) {
    using Levels = std::vector<Severity>;
    const struct {
        const char* check;
        Levels usual;
        const char* setting;
        Levels moved;
    } kCases[] = {
        {"matrix products", {Severity::Fail}, "peers=0.6", {Severity::Warn}},
        {"line rate of nodes", {Severity::Warn}, "line=0.5", {}},
        {"line rate of nodes", {Severity::Warn}, "line-fail=0.65", {Severity::Fail}},
        {"all_gather over dp_shard", {Severity::Warn}, "nvlink=0.4", {}},
        {"sustained matrix products", {Severity::Warn}, "peak=0.4", {}},
        {"copies to the device", {Severity::Warn}, "pcie=0.4", {}},
        {"GPU clocks under load", {Severity::Warn}, "clocks=0.7", {}},
    };
    for (const auto& [check, usual, setting, moved] : kCases) {
        SlowNode slow;
        EXPECT_EQ(slow.levels(check), usual) << check;
        set_threshold(setting, slow.cluster.thresholds);
        EXPECT_EQ(slow.levels(check), moved) << setting;
    }
}

}  // namespace
}  // namespace argosy::preflight
