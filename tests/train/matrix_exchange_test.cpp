// The division of matrices over their owners.
#include "train/matrix_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace argosy::train {
namespace {

/// Matrices that cannot be shared.
std::vector<MatrixCost> alone(const std::vector<double>& costs) {
    std::vector<MatrixCost> result;
    for (const double cost : costs) result.push_back({cost});
    return result;
}

std::vector<double> sums_of(const Division& division, const std::vector<MatrixCost>& costs, int num_ranks) {
    std::vector<double> sums(num_ranks, 0);
    for (const Owned& wave : division.waves) {
        for (int rank = 0; rank < num_ranks; ++rank) {
            if (!wave[rank]) continue;
            const auto [cost, shared] = costs[*wave[rank]];
            sums[rank] += division.shared[*wave[rank]] ? shared : cost;
        }
    }
    return sums;
}

TEST(DivideOverOwners, GivesEachMatrixOneOwner) {
    const std::vector<MatrixCost> costs = alone({1, 5, 5, 2, 8, 3, 1});
    const std::vector<Owned> waves = divide_over_owners(costs, 3, 1).waves;
    ASSERT_EQ(waves.size(), 3);
    EXPECT_EQ(waves[0], (Owned{4, 1, 2})) << "the costliest matrices come first";
    EXPECT_EQ(waves[1], (Owned{6, 5, 3}));
    EXPECT_EQ(waves[2], (Owned{std::nullopt, std::nullopt, 0}));
    EXPECT_EQ(divide_over_owners(costs, 7, 1).waves.size(), 1);
    EXPECT_EQ(divide_over_owners(costs, 9, 1).waves[0].back(), std::nullopt) << "more ranks than matrices";
    EXPECT_TRUE(divide_over_owners({}, 4, 2).waves.empty());
}

TEST(DivideOverOwners, BalancesTheirWork) {
    std::mt19937 bits(3);
    std::uniform_real_distribution<double> random(0.5, 4);
    for (const int num_ranks : {2, 8, 32}) {
        std::vector<MatrixCost> costs(224);
        for (MatrixCost& cost : costs) cost.alone = random(bits);
        const std::vector<double> sums = sums_of(divide_over_owners(costs, num_ranks, 1), costs, num_ranks);
        const double mean = std::accumulate(sums.begin(), sums.end(), 0.0) / num_ranks;
        EXPECT_LE(std::ranges::max(sums) / mean, 1.1) << num_ranks;
    }
}

TEST(DivideOverOwners, SharesMatricesThatWouldMakeRanksWait) {
    const std::vector<MatrixCost> one = {{8, 5}, {1}, {1}};
    EXPECT_EQ(divide_over_owners(one, 4, 2).shared, (std::vector{true, false, false}));
    EXPECT_EQ(divide_over_owners(one, 4, 2).waves, (std::vector<Owned>{{0, 0, 1, 2}}));
    // Where each rank has as much to do, sharing would only add travel.
    EXPECT_EQ(divide_over_owners(std::vector<MatrixCost>(4, {8, 5}), 4, 2).shared, std::vector(4, false));
    // With the first two shared, a rank has 11 and then 16; with the third, 15.5 and then 4; before, 20.
    const std::vector<MatrixCost> three = {{20, 5.5}, {20, 5.5}, {16, 4.5}, {4}};
    EXPECT_EQ(divide_over_owners(three, 4, 4).shared, (std::vector{true, true, true, false}));
    EXPECT_EQ(divide_over_owners(three, 4, 4).largest_sum, 19.5);
}

// The ranks of a group wait for each other inside of a shared matrix.
TEST(DivideOverOwners, PlacesASharedMatrixInOneWaveOnTheRanksOfOneGroup) {
    std::mt19937 bits(5);
    const auto between = [&](int min, int max) { return std::uniform_int_distribution<int>(min, max)(bits); };
    int num_shared = 0, num_alone = 0;
    for (int draw = 0; draw < 3000; ++draw) {
        const int group_size = between(1, 8), num_ranks = group_size * between(1, 9);
        std::vector<MatrixCost> costs(between(0, 40));
        for (MatrixCost& cost : costs) {
            cost.alone = between(1, between(1, 100));
            if (between(0, 3) > 0) cost.shared = cost.alone / group_size + 0.1 * between(0, 20);
        }
        const Division division = divide_over_owners(costs, num_ranks, group_size);
        std::vector<int> num_owners(costs.size(), 0);
        for (const Owned& wave : division.waves) {
            for (int rank = 0; rank < num_ranks; ++rank) {
                if (!wave[rank]) continue;
                ++num_owners[*wave[rank]];
                if (!division.shared[*wave[rank]]) continue;
                for (int other = rank / group_size * group_size; other / group_size == rank / group_size;
                     ++other)
                    ASSERT_EQ(wave[other], wave[rank]) << "draw " << draw;
            }
        }
        for (size_t i = 0; i < costs.size(); ++i) {
            ASSERT_EQ(num_owners[i], division.shared[i] ? group_size : 1) << "draw " << draw;
            ++(division.shared[i] ? num_shared : num_alone);
        }
        const std::vector<double> sums = sums_of(division, costs, num_ranks);
        ASSERT_NEAR(sums[0], std::ranges::max(sums), 1e-9) << "plans are of the first rank";
        for (MatrixCost& cost : costs) cost = {cost.alone};
        const Division unshared = divide_over_owners(costs, num_ranks, group_size);
        ASSERT_LE(division.largest_sum, unshared.largest_sum);
    }
    EXPECT_GT(num_shared, 1000);
    EXPECT_GT(num_alone, 1000);
}

TEST(PreferHolders, KeepsMatricesWhereTheyAreWhole) {
    // Each of four ranks, two of each replica, holds four of eight experts' matrices; two other matrices.
    std::vector<MatrixCost> costs(8, {3});
    std::vector<std::vector<int>> holders;
    for (int expert = 0; expert < 8; ++expert) holders.push_back({expert / 4, 2 + expert / 4});
    costs.insert(costs.end(), {{3}, {7}});
    holders.resize(costs.size());
    Division division = divide_over_owners(costs, 4, 1);
    const std::vector<double> before = sums_of(division, costs, 4);
    prefer_holders(division, costs, holders);
    EXPECT_EQ(sums_of(division, costs, 4), before);
    std::vector<int> num_owners(costs.size(), 0);
    int num_apart = 0;  // the sums of ranks allow no more than this
    for (const Owned& wave : division.waves) {
        for (int rank = 0; rank < 4; ++rank) {
            if (!wave[rank]) continue;
            ++num_owners[*wave[rank]];
            const std::vector<int>& held = holders[*wave[rank]];
            num_apart += !held.empty() && !std::ranges::count(held, rank) ? 1 : 0;
        }
    }
    EXPECT_EQ(num_owners, std::vector<int>(costs.size(), 1));
    EXPECT_LE(num_apart, 1);
}

TEST(PreferHolders, LeavesSharedMatricesWhereTheyAre) {
    const std::vector<MatrixCost> costs = {{8, 5}, {1}, {1}};
    Division division = divide_over_owners(costs, 4, 2);
    prefer_holders(division, costs, std::vector<std::vector<int>>{{3}, {3}, {2}});
    EXPECT_EQ(division.waves, (std::vector<Owned>{{0, 0, 2, 1}}));
}

}  // namespace
}  // namespace argosy::train
