#include "preflight/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "base/median.h"
#include "bench/collective.h"
#include "preflight/cluster.h"

namespace argosy::preflight {
namespace {

/// Two ranks on each of four nodes.
Cluster measured_cluster() {
    Cluster made;
    for (const char* name : {"n1", "n2", "n3", "n4"}) {
        made.nodes.push_back({.name = name});
        for (int i = 0; i < 2; ++i) {
            made.ranks.push_back({.rank = static_cast<int>(made.ranks.size()), .node = name});
        }
    }
    return made;
}

OperationSpeed speed_of(const char* collective, std::vector<std::vector<int>> groups,
                        std::vector<double> rates) {
    const bench::Case kind{.collective = &bench::collective_named(collective)};
    return {{"dp_shard", std::move(groups), kind, 0}, std::move(rates)};
}

TEST(CompareSpeeds, FindsNothingIfAllSpeedsAreEqual) {
    const Speeds speeds{{10, 10, 10, 10, 10.5, 10, 9.5, 10},
                        {speed_of("all_gather", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {5, 5, 5.2, 5})},
                        {40, 41, 40, 39}};
    EXPECT_TRUE(compare_speeds(speeds, measured_cluster()).empty());
}

TEST(CompareSpeeds, NamesASlowRankAndItsNode) {
    Speeds speeds{{10e12, 10e12, 10e12, 10e12, 10e12, 4e12, 10e12, 10e12}, {}, {}};
    auto findings = compare_speeds(speeds, measured_cluster());
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].severity, Severity::Fail);
    EXPECT_EQ(findings[0].where, "rank 5 on n3");
    EXPECT_EQ(findings[0].bad_nodes, Names{"n3"});
    EXPECT_EQ(findings[0].what,
              "4 TFLOP/s, 40 % of the median of the other devices of its kind (robust z-score 60.0)");

    speeds.products[5] = 8.5e12;
    findings = compare_speeds(speeds, measured_cluster());
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].severity, Severity::Warn) << "slower, but not worth a node";
    EXPECT_TRUE(findings[0].bad_nodes.empty());
}

/// One node has older GPUs.
TEST(CompareSpeeds, ComparesProductsOfDevicesOfOneKind) {
    Speeds speeds{{7e14, 7e14, 7e14, 7e14, 7e14, 7e14, 3e14, 3e14}, {}, {}};
    const Cluster cluster = measured_cluster();
    EXPECT_EQ(bad_nodes_of(compare_speeds(speeds, cluster)), std::set<std::string>{"n4"});

    for (const RankFacts& rank : cluster.ranks)
        speeds.devices.push_back({.name = rank.node == "n4" ? "NVIDIA A100" : "NVIDIA H100"});
    EXPECT_TRUE(compare_speeds(speeds, cluster).empty());
    speeds.products[7] = 2e14;
    const auto findings = compare_speeds(speeds, cluster);
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].where, "rank 7 on n4");
}

TEST(CompareSpeeds, MakesANodeBadForASlowGroupWithinIt) {
    const Speeds speeds{
        {}, {speed_of("all_gather", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {5e9, 1e9, 5e9, 5e9})}, {}};
    const auto findings = compare_speeds(speeds, measured_cluster());
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].check, "all_gather over dp_shard");
    EXPECT_EQ(findings[0].where, "ranks 2-3 on n2");
    EXPECT_EQ(findings[0].bad_nodes, Names{"n2"});
}

TEST(CompareSpeeds, MakesNoNodeBadForASlowGroupAcrossNodesUnlessThePairsDo) {
    Speeds speeds{{},
                  {speed_of("all_reduce", {{0, 4}, {1, 5}, {2, 6}, {3, 7}}, {5e9, 5e9, 1e9, 5e9})},
                  {40e9, 40e9, 40e9, 40e9}};
    auto findings = compare_speeds(speeds, measured_cluster());
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].where, "ranks 2, 6 on n2, n4");
    EXPECT_EQ(findings[0].severity, Severity::Warn) << "a job would end for want of a node to leave out";
    EXPECT_TRUE(findings[0].bad_nodes.empty());

    speeds.nodes[3] = 4e9;
    findings = compare_speeds(speeds, measured_cluster());
    ASSERT_EQ(findings.size(), 1) << "the slow node says why the group is slow";
    EXPECT_EQ(findings[0].check, "pairs of nodes");
    EXPECT_EQ(findings[0].bad_nodes, Names{"n4"});

    speeds.nodes = {40e9, 40e9 * 0.8, 40e9, 40e9};
    speeds.operations[0].bus_bandwidths = {1e9, 5e9, 5e9, 5e9};
    EXPECT_EQ(compare_speeds(speeds, measured_cluster()).size(), 2) << "n2 has no rank of the slow group";
}

TEST(CompareSpeeds, ComparesGroupsOnEquallyManyNodes) {
    const std::vector<std::vector<int>> torn = {{0, 1}, {2, 4}, {3, 5}, {6, 7}};
    const auto findings_at = [&](std::vector<double> rates) {
        return compare_speeds({{}, {speed_of("all_gather", torn, std::move(rates))}, {}}, measured_cluster());
    };
    EXPECT_TRUE(findings_at({50e9, 5e9, 5e9, 50e9}).empty());
    const auto findings = findings_at({50e9, 5e9, 5e9, 20e9});
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].bad_nodes, Names{"n4"});
}

TEST(CompareSpeeds, FailsWrongResultsWhateverTheSpeeds) {
    Speeds speeds{{10, 1}, {speed_of("reduce_scatter", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {5e9})}, {}};
    EXPECT_TRUE(find_wrong_results(speeds, measured_cluster()).empty());
    speeds.operations[0].num_wrong = {0, 0, 5, 7, 0, 0, 0, 0};
    auto findings = find_wrong_results(speeds, measured_cluster());
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].where, "ranks 2-3 on n2");
    EXPECT_EQ(findings[0].severity, Severity::Fail);
    EXPECT_EQ(findings[0].what, "12 elements of the result are wrong");
    EXPECT_EQ(findings[0].bad_nodes, Names{"n2"}) << "no data came from another node";

    speeds.operations[0].num_wrong[6] = 1;
    EXPECT_EQ(find_wrong_results(speeds, measured_cluster())[0].bad_nodes, (Names{"n2", "n4"}));

    speeds.operations[0].operation.groups = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
    findings = find_wrong_results(speeds, measured_cluster());
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].severity, Severity::Fail);
    EXPECT_EQ(findings[0].bad_nodes, Names{}) << "either node of a group may be at fault";
}

/// Of eight rails one has half the speed: the node still sends at 94 %.
TEST(CompareSpeeds, NamesASlowRail) {
    Cluster cluster;
    for (int rank = 0; rank < 32; ++rank) {
        if (rank % 8 == 0) cluster.nodes.push_back({.name = "n" + std::to_string(rank / 8)});
        cluster.ranks.push_back({.rank = rank, .node = cluster.nodes.back().name});
    }
    Speeds speeds;
    speeds.nodes = {400e9, 400e9, 375e9, 400e9};
    speeds.rails.assign(4, std::vector<double>(8, 50e9));
    EXPECT_TRUE(compare_speeds(speeds, cluster).empty());
    speeds.rails[2][5] = 25e9;
    auto findings = compare_speeds(speeds, cluster);
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].check, "rails between nodes");
    EXPECT_EQ(findings[0].where, "rank 21 on n2");
    EXPECT_EQ(findings[0].severity, Severity::Fail);
    EXPECT_EQ(findings[0].bad_nodes, Names{"n2"});

    speeds.nodes[2] = 355e9;  // a WARN of its own
    speeds.rails[2][5] = 5e9;
    findings = compare_speeds(speeds, cluster);
    ASSERT_EQ(findings.size(), 2);
    EXPECT_EQ(findings[1].where, "rank 21 on n2");
    EXPECT_EQ(findings[1].severity, Severity::Fail);
    speeds.nodes[2] = 375e9;

    for (auto& rails : speeds.rails) rails[5] = 25e9;
    EXPECT_TRUE(compare_speeds(speeds, cluster).empty()) << "by design";
    speeds.rails[1].assign(8, 5e9);
    speeds.nodes[1] = 40e9;
    findings = compare_speeds(speeds, cluster);
    ASSERT_EQ(findings.size(), 1) << "the whole node";
    EXPECT_EQ(findings[0].check, "pairs of nodes");
}

TEST(CompareSpeeds, FailsANodeThatIsSlowWithAllPartners) {
    Speeds speeds;
    speeds.nodes = {100e9, 100e9, 100e9, 70e9};
    speeds.rails = {{100e9}, {100e9}, {100e9}, {70e9}};
    const auto findings = compare_speeds(speeds, measured_cluster());
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].check, "pairs of nodes");
    EXPECT_EQ(findings[0].severity, Severity::Fail);
    EXPECT_EQ(findings[0].bad_nodes, Names{"n4"});
}

TEST(CompareSpeeds, NamesASlowRailOfTwoNodesWithoutABadOne) {
    Cluster cluster = measured_cluster();
    cluster.nodes.resize(2);
    cluster.ranks.resize(4);
    Speeds speeds;
    speeds.nodes = {55e9, 55e9};
    speeds.rails = {{50e9, 5e9}, {50e9, 5e9}};
    const auto findings = compare_speeds(speeds, cluster);
    ASSERT_EQ(findings.size(), 1);
    EXPECT_EQ(findings[0].where, "rank 1 on n1 and its counterpart on n2");
    EXPECT_EQ(findings[0].severity, Severity::Warn);
    EXPECT_TRUE(findings[0].bad_nodes.empty());
}

std::vector<size_t> slow(const std::vector<double>& rates) {
    std::vector<size_t> indices;
    for (const Outlier& one : slow_outliers(rates)) indices.push_back(one.index);
    return indices;
}

using Indices = std::vector<size_t>;

TEST(Outliers, NeedTenPercentAndMoreThanTheOthersDiffer) {
    EXPECT_EQ(slow({100, 100, 100, 91}), Indices{});
    EXPECT_EQ(slow({100, 100, 100, 89}), Indices{3});
    EXPECT_EQ(slow({100, 80, 120, 70, 110, 90}), Indices{}) << "they all differ that much";
    EXPECT_EQ(slow({100, 80, 120, 20, 110, 90}), Indices{3});
    EXPECT_EQ(slow({100, 100, 100, 300}), Indices{}) << "faster than the rest is no fault";
}

TEST(Outliers, MayBeSeveralOfFew) {
    EXPECT_EQ(slow({100, 50}), Indices{1});
    EXPECT_EQ(slow({95, 100}), Indices{});
    EXPECT_EQ(slow({100, 50, 99}), Indices{1});
    EXPECT_EQ(slow({50, 100, 101, 52}), (Indices{0, 3})) << "half of the ranks: a node of two";
    EXPECT_EQ(slow({100, 100, 100, 100, 40, 41, 100, 100}), (Indices{4, 5}));
}

TEST(Outliers, HaveTheirDistance) {
    // The others' median is 100, their deviations' is 2, so a deviation counts 1.4826 x 2.
    const auto outliers = slow_outliers(std::vector<double>{98, 102, 96, 104, 100, 50});
    ASSERT_EQ(outliers.size(), 1);
    EXPECT_DOUBLE_EQ(outliers[0].share, 0.5);
    EXPECT_NEAR(outliers[0].zscore, 50 / (1.4826 * 2), 1e-9);
}

/// As defined: for each rate the median of the others, and the median of their distances from it.
TEST(Outliers, AreThoseOfTheDefinition) {
    std::mt19937 engine(5);
    for (int round = 0; round < 200; ++round) {
        std::vector<double> rates(1 + engine() % 12);
        for (double& rate : rates) rate = static_cast<double>(engine() % 8) * 20;
        std::vector<size_t> expected;
        for (size_t i = 0; i < rates.size(); ++i) {
            std::vector<double> others, distances;
            for (size_t j = 0; j < rates.size(); ++j) {
                if (j != i && rates[j] > 0) others.push_back(rates[j]);
            }
            if (others.empty() || rates[i] <= 0) continue;
            const double middle = median(others);
            for (const double other : others) distances.push_back(std::abs(other - middle));
            const double deviation = std::max(1.4826 * median(distances), 0.01 * middle);
            if (rates[i] < 0.9 * middle && middle - rates[i] > 3.5 * deviation) expected.push_back(i);
        }
        EXPECT_EQ(slow(rates), expected);
    }
}

TEST(Outliers, IgnoreRatesThatWereNotMeasured) {
    EXPECT_EQ(slow({}), Indices{});
    EXPECT_EQ(slow({100}), Indices{});
    EXPECT_EQ(slow({100, 0, 100, 100}), Indices{});
}

}  // namespace
}  // namespace argosy::preflight
