// The division of matrices over their owners.
#include "train/matrix_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace argosy::train {
namespace {

TEST(DivideOverOwners, GivesEachMatrixOneOwner) {
    const std::vector<double> costs = {1, 5, 5, 2, 8, 3, 1};
    const std::vector<Owned> waves = divide_over_owners(costs, 3);
    ASSERT_EQ(waves.size(), 3);
    EXPECT_EQ(waves[0], (Owned{4, 1, 2})) << "the costliest matrices come first";
    EXPECT_EQ(waves[1], (Owned{6, 5, 3}));
    EXPECT_EQ(waves[2], (Owned{std::nullopt, std::nullopt, 0}));
    EXPECT_EQ(divide_over_owners(costs, 7).size(), 1);
    EXPECT_EQ(divide_over_owners(costs, 9)[0].back(), std::nullopt) << "more ranks than matrices";
    EXPECT_TRUE(divide_over_owners({}, 4).empty());
}

TEST(DivideOverOwners, BalancesTheirWork) {
    std::mt19937 bits(3);
    std::uniform_real_distribution<double> random(0.5, 4);
    for (const int num_ranks : {2, 8, 32}) {
        std::vector<double> costs(224), sums(num_ranks, 0);
        std::ranges::generate(costs, [&] { return random(bits); });
        for (const Owned& wave : divide_over_owners(costs, num_ranks)) {
            for (int rank = 0; rank < num_ranks; ++rank) sums[rank] += wave[rank] ? costs[*wave[rank]] : 0;
        }
        const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / num_ranks;
        EXPECT_LE(std::ranges::max(sums) / mean, 1.1) << num_ranks;
    }
}

}  // namespace
}  // namespace argosy::train
