// The nodes of a job, the rounds in which they exchange data, and the hunt for bad nodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <set>

#include "preflight/cluster.h"
#include "preflight/diagnose.h"
#include "preflight/simulated_meter.h"

namespace argosy::preflight {
namespace {

using Ranks = std::vector<int>;

TEST(Nodes, HoldTheirRanks) {
    const auto nodes = group_by_node({"b", "b", "a", "b", "a"});
    ASSERT_EQ(nodes.size(), 2);
    EXPECT_EQ(nodes[0].name, "b");
    EXPECT_EQ(nodes[0].ranks, (Ranks{0, 1, 3}));
    EXPECT_EQ(nodes[1].ranks, (Ranks{2, 4}));
    EXPECT_EQ(nodes[1].name, "a");
}

TEST(Nodes, AreListedUpToEight) {
    EXPECT_EQ(listed({"n1"}), "n1");
    EXPECT_EQ(listed({"n1", "n2"}), "n1, n2");
    EXPECT_EQ(listed({"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}),
              "1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
}

TEST(RoundsOfPairs, PairEveryNodeWithOthersEachRound) {
    for (int num_nodes = 2; num_nodes <= 70; ++num_nodes) {
        for (const int most : {1, 3, 1000}) {
            const auto rounds = rounds_of_pairs(num_nodes, most);
            const int all = num_nodes - 1 + num_nodes % 2;
            ASSERT_EQ(rounds.size(), std::min(most, all)) << num_nodes;
            std::set<std::pair<int, int>> met;
            for (const Round& round : rounds) {
                int num_alone = 0;
                for (int node = 0; node < num_nodes; ++node) {
                    ASSERT_EQ(round[round[node]], node) << num_nodes;
                    num_alone += round[node] == node;
                    if (round[node] != node) met.insert({node, round[node]});
                }
                EXPECT_EQ(num_alone, num_nodes % 2);
            }
            EXPECT_EQ(met.size(), rounds.size() * (num_nodes - num_nodes % 2)) << "no two meet twice";
        }
    }
}

TEST(RoundsOfPairs, NeedTwoNodes) { EXPECT_TRUE(rounds_of_pairs(1, 3).empty()); }

constexpr int kRoundsBefore = 3;

std::vector<Node> nodes_of_two(int num_nodes) {
    std::vector<std::string> names;
    for (int rank = 0; rank < 2 * num_nodes; ++rank) names.push_back("n" + std::to_string(rank / 2));
    return group_by_node(names);
}

TEST(Hunt, TakesNoRoundIfAllNodesAreGood) {
    SimulatedMeter meter(16, 2);
    const Speeds speeds = measure_speeds(meter, nodes_of_two(16), {}, kNoDeadline);
    EXPECT_EQ(meter.num_rounds(), kRoundsBefore);
    EXPECT_EQ(speeds.pairs.size(), 8 * kRoundsBefore);
}

TEST(Hunt, TellsABadNodeFromABadPath) {
    const auto first_round = rounds_of_pairs(16, kRoundsBefore)[1];
    const int near = 4, far = first_round[near];
    SimulatedMeter bad_path(16, 2), bad_node(16, 2);
    bad_path.slow_path(near, far, 0.3);
    Speeds speeds = measure_speeds(bad_path, nodes_of_two(16), {}, kNoDeadline);
    EXPECT_EQ(bad_path.num_rounds(), kRoundsBefore) << "both nodes are fast with others";
    EXPECT_EQ(bad_nodes_of(compare_speeds(speeds, good_cluster(16))), std::set<std::string>{});

    bad_node.slow_node(near, 0.3);
    speeds = measure_speeds(bad_node, nodes_of_two(16), {}, kNoDeadline);
    EXPECT_EQ(bad_node.num_rounds(), kRoundsBefore + 2) << "twice more, with good partners";
    EXPECT_LT(speeds.nodes[near], 0.5 * speeds.nodes[far]);
}

/// Every choice of bad nodes, also where more than half of the pairs touch a bad one.
TEST(Hunt, NamesTheSlowNodesOfSmallJobs) {
    for (const auto& [num_nodes, num_bad] : {std::pair{3, 1}, {4, 1}, {5, 2}, {6, 2}, {7, 3}, {8, 3}}) {
        const Cluster cluster = good_cluster(num_nodes);
        for (unsigned chosen = 0; chosen < 1u << num_nodes; ++chosen) {
            if (std::popcount(chosen) != num_bad) continue;
            SimulatedMeter meter(num_nodes, 2);
            std::set<std::string> bad;
            std::vector<std::string> names;
            for (int node = 0; node < num_nodes; ++node) {
                names.insert(names.end(), 2, cluster.nodes[node].name);
                if (chosen >> node & 1) meter.slow_node(node, 0.1), bad.insert(cluster.nodes[node].name);
            }
            const Speeds speeds = measure_speeds(meter, group_by_node(names), {}, kNoDeadline);
            EXPECT_EQ(bad_nodes_of(compare_speeds(speeds, cluster)), bad) << num_nodes << " " << chosen;
        }
    }
}

/// A node all of whose first partners are bad looks as bad as they are.
TEST(Hunt, ClearsANodeThatMetOnlyBadNodes) {
    SimulatedMeter meter(32, 2);
    std::set<int> bad;
    for (const Round& round : rounds_of_pairs(32, kRoundsBefore)) bad.insert(round[9]);
    for (const int node : bad) meter.slow_node(node, 0.4);
    const Speeds speeds = measure_speeds(meter, nodes_of_two(32), {}, kNoDeadline);
    for (int node = 0; node < 32; ++node) EXPECT_EQ(speeds.nodes[node] < 80e9, bad.contains(node)) << node;
}

/// Between two switches with 16 nodes each, a link is bad. Many nodes are bad, too.
TEST(Hunt, TakesFewRoundsOfDisjointPairs) {
    constexpr int kNodes = 128;
    SimulatedMeter meter(kNodes, 2);
    for (int near = 16; near < 32; ++near) {
        for (int far = 96; far < 112; ++far) meter.slow_path(near, far, 0.5);
    }
    std::set<int> bad;
    for (int node = 3; node < kNodes; node += 11) meter.slow_node(node, 0.3), bad.insert(node);
    const Speeds speeds = measure_speeds(meter, nodes_of_two(kNodes), {}, kNoDeadline);
    EXPECT_LE(meter.num_rounds(), kRoundsBefore + 1 + 3 * static_cast<int>(std::log2(kNodes)));
    for (int node = 0; node < kNodes; ++node)
        EXPECT_EQ(speeds.nodes[node] < 80e9, bad.contains(node)) << node;
}

/// Leaves of switches whose links to the others carry less than all of their nodes send.
struct TaperedFabric {
    int num_nodes, nodes_per_leaf;
    double taper;
    unsigned seed = 0;  // of the nodes' order; 0: leaf after leaf
};

std::string describe(const TaperedFabric& fabric) {
    return std::to_string(fabric.num_nodes) + " nodes in leaves of " + std::to_string(fabric.nodes_per_leaf) +
           ", " + std::to_string(fabric.taper) + ":1, order " + std::to_string(fabric.seed);
}

/// The nodes that get FAIL if `bad` send at half speed to all partners.
std::set<std::string> failing_nodes(const TaperedFabric& fabric, const std::set<int>& bad) {
    std::vector<int> leaves;
    for (int node = 0; node < fabric.num_nodes; ++node) leaves.push_back(node / fabric.nodes_per_leaf);
    if (fabric.seed > 0) std::ranges::shuffle(leaves, std::mt19937(fabric.seed));
    SimulatedMeter meter(fabric.num_nodes, 2);
    meter.taper(leaves, fabric.nodes_per_leaf / fabric.taper);
    for (const int node : bad) meter.slow_node(node, 0.5);
    const Speeds speeds = measure_speeds(meter, nodes_of_two(fabric.num_nodes), {}, kNoDeadline);
    EXPECT_LE(meter.num_rounds(), kRoundsBefore + 1 + 3 * std::log2(fabric.num_nodes));
    return bad_nodes_of(compare_speeds(speeds, good_cluster(fabric.num_nodes)));
}

constexpr TaperedFabric kTaperedFabrics[] = {{16, 8, 4},   {32, 8, 2},    {63, 16, 4}, {64, 16, 2},
                                             {64, 16, 4},  {100, 16, 2},  {100, 9, 3}, {128, 32, 2},
                                             {128, 32, 4}, {1024, 256, 4}};

/// Whether the nodes are in the order of the leaves or not.
TEST(Hunt, FailsNoGoodNodeOfATaperedFabric) {
    for (TaperedFabric fabric : kTaperedFabrics) {
        for (fabric.seed = 0; fabric.seed < 20; ++fabric.seed)
            EXPECT_EQ(failing_nodes(fabric, {}), std::set<std::string>{}) << describe(fabric);
    }
}

TEST(Hunt, NamesTheBadNodesOfATaperedFabric) {
    for (const TaperedFabric& fabric : kTaperedFabrics) {
        const int last = fabric.num_nodes - 1;
        for (const std::set<int>& bad :
             {std::set{0}, std::set{last}, std::set{last / 2}, std::set{last / 3, last / 2, last / 2 + 1}}) {
            std::set<std::string> expected;
            for (const int node : bad) expected.insert("n" + std::to_string(node));
            EXPECT_EQ(failing_nodes(fabric, bad), expected) << describe(fabric);
        }
    }
}

/// The last node has half of the ranks, as if mpirun had placed the ranks of a job that is too small.
TEST(Hunt, ComparesNodesWithUnequalRanks) {
    for (const int num_nodes : {3, 4, 16}) {
        Cluster cluster = good_cluster(num_nodes, 8);
        cluster.ranks.resize(cluster.ranks.size() - 4);
        std::vector<std::string> names;
        for (const RankFacts& rank : cluster.ranks) names.push_back(rank.node);
        SimulatedMeter meter(num_nodes, 8);
        meter.fewer_ranks(num_nodes - 1, 4);
        Speeds speeds = measure_speeds(meter, group_by_node(names), {}, kNoDeadline);
        EXPECT_EQ(checks_of(compare_speeds(speeds, cluster)), Names{}) << num_nodes;
        EXPECT_EQ(meter.num_rounds(), kRoundsBefore) << "no pair is slow";

        meter.slow_node(num_nodes - 1, 0.6);
        speeds = measure_speeds(meter, group_by_node(names), {}, kNoDeadline);
        EXPECT_EQ(bad_nodes_of(compare_speeds(speeds, cluster)),
                  std::set<std::string>{cluster.nodes.back().name});
    }
}

TEST(Hunt, PairsANodeWithWrongDataAgain) {
    SimulatedMeter meter(8, 2);
    meter.wrong_data(5);
    const Speeds speeds = measure_speeds(meter, nodes_of_two(8), {}, kNoDeadline);
    EXPECT_EQ(meter.num_rounds(), kRoundsBefore + 2);
    EXPECT_EQ(std::ranges::count_if(speeds.pairs, [](const PairSpeed& pair) { return pair.num_wrong > 0; }),
              kRoundsBefore + 2);
}

/// The nodes marked for exchanges (first node, second node, wrong elements).
std::set<std::string> corrupting(const std::vector<std::array<int, 3>>& exchanges, bool cut_short = false) {
    Speeds speeds;
    speeds.pairs_cut_short = cut_short;
    for (const auto& [first, second, wrong] : exchanges)
        speeds.pairs.push_back({first, second, {50e9}, wrong});
    const auto findings = find_wrong_results(speeds, good_cluster(6));
    for (const Finding& one : findings) EXPECT_EQ(one.severity, Severity::Fail);
    return bad_nodes_of(findings);
}
using Marked = std::set<std::string>;

TEST(WrongData, MarksTheNodeThatIsRightWithNobody) {
    EXPECT_EQ(corrupting({{0, 2, 5}}), Marked{}) << "one of them";
    EXPECT_EQ(corrupting({{0, 2, 5}, {0, 2, 1}}), Marked{}) << "the same pair again";
    EXPECT_EQ(corrupting({{0, 2, 5}, {2, 3, 1}}), Marked{"n2"}) << "with several";
    EXPECT_EQ(corrupting({{0, 2, 5}, {2, 3, 1}}, /*cut_short=*/true), Marked{}) << "perhaps both are bad";
    EXPECT_EQ(corrupting({{0, 2, 5}, {0, 1, 0}}), Marked{"n2"}) << "with one that is right with another";
    EXPECT_EQ(corrupting({{0, 2, 5}, {0, 1, 0}, {2, 3, 0}}), Marked{}) << "both are";
}

TEST(WrongData, SparesAGoodNodeThatMetTwoBadOnes) {
    std::vector<std::array<int, 3>> exchanges = {{0, 1, 5}, {2, 3, 5}, {0, 2, 5}, {1, 3, 5}, {0, 3, 0}};
    EXPECT_EQ(corrupting(exchanges), (Marked{"n1", "n2"}));
    exchanges.pop_back();
    EXPECT_EQ(corrupting(exchanges, /*cut_short=*/true), Marked{}) << "nobody knows who is good";
}

TEST(WrongData, MarksANodeThatIsWrongNowAndThen) {
    EXPECT_EQ(corrupting({{0, 1, 5}, {1, 2, 3}, {1, 3, 0}, {0, 2, 0}, {0, 3, 0}}), Marked{"n1"});
    EXPECT_EQ(corrupting({{0, 1, 5}, {0, 1, 0}, {1, 2, 3}, {1, 3, 0}, {0, 2, 0}}), Marked{"n1"})
        << "right when measured again";
    EXPECT_EQ(corrupting({{0, 1, 5}, {1, 2, 3}, {1, 3, 0}, {0, 4, 0}, {2, 5, 4}}), Marked{"n2"})
        << "n1 met n2, which is right with nobody";
}

}  // namespace
}  // namespace argosy::preflight
