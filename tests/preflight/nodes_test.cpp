#include "preflight/nodes.h"

#include <gtest/gtest.h>

#include <set>

namespace argosy::preflight {
namespace {

using Ranks = std::vector<int>;
using Names = std::vector<std::string>;

TEST(Nodes, HoldTheirRanks) {
    const auto nodes = group_by_node({"b", "b", "a", "b", "a"});
    ASSERT_EQ(nodes.size(), 2);
    EXPECT_EQ(nodes[0].name, "b");
    EXPECT_EQ(nodes[0].ranks, (Ranks{0, 1, 3}));
    EXPECT_EQ(nodes[1].ranks, (Ranks{2, 4}));
    EXPECT_EQ(names_of(nodes), (Names{"b", "a"}));
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

}  // namespace
}  // namespace argosy::preflight
