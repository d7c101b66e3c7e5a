#include "preflight/compare_speeds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/median.h"

namespace argosy::preflight {
namespace {

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
