#include "data/mixture_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::data {
namespace {

/// The elements of the first `rounds` rounds, sorted by their times as fractions.
std::vector<MixtureOrder::Element> sorted_by_time(const std::vector<int64_t>& weights, int64_t rounds) {
    std::vector<MixtureOrder::Element> all;
    for (size_t stream = 0; stream < weights.size(); ++stream) {
        for (int64_t k = 0; k < rounds * weights[stream]; ++k)
            all.push_back({static_cast<int64_t>(stream), k});
    }
    std::ranges::stable_sort(all, [&](const auto& one, const auto& other) {
        return (2 * one.number + 1) * weights[other.stream] < (2 * other.number + 1) * weights[one.stream];
    });
    return all;
}

TEST(MixtureOrder, IsTheOrderOfTheTimes) {
    const std::vector<std::vector<int64_t>> mixtures = {
        {1}, {1, 1}, {2, 1}, {1, 2, 3}, {7, 1, 1, 1, 1, 1}, {13, 8, 5, 3, 2, 1, 1}, {97, 89, 83}, {1000, 1}};
    for (const auto& weights : mixtures) {
        const MixtureOrder order(std::vector<double>(weights.begin(), weights.end()));
        const auto expected = sorted_by_time(weights, 3);
        for (int64_t p = 0; p < std::ssize(expected); ++p)
            ASSERT_EQ(order.at(p), expected[p]) << weights.size() << " streams, position " << p;
    }
}

TEST(MixtureOrder, InterleavesEvenly) {
    const std::vector<double> weights = {0.4, 0.05, 0.3, 0.15, 0.1};
    const MixtureOrder order(weights);
    std::vector<int64_t> counts(weights.size());
    for (int64_t p = 0; p < 2000; ++p) {
        ++counts[order.at(p).stream];
        for (size_t i = 0; i < weights.size(); ++i)
            ASSERT_LE(std::abs(static_cast<double>(counts[i]) - weights[i] * static_cast<double>(p + 1)),
                      1.5);
    }
}

TEST(MixtureOrder, CountsTheDigitsOfWeights) {
    EXPECT_EQ(MixtureOrder({0.7, 0.2, 0.1}).weights(), (std::vector<int64_t>{7, 2, 1}));
    EXPECT_EQ(MixtureOrder({30, 12, 0.5}).weights(), (std::vector<int64_t>{60, 24, 1}));
    EXPECT_EQ(MixtureOrder({1.25e9, 2.5e8}).weights(), (std::vector<int64_t>{5, 1}));
    EXPECT_EQ(MixtureOrder({1e-8, 3e-8}).weights(), (std::vector<int64_t>{1, 3}));
    EXPECT_EQ(MixtureOrder({0.3333333333333333}).weights(), (std::vector<int64_t>{1}));
    EXPECT_ERROR(MixtureOrder({1e9, 1e-12}), UserError, "1000000000, 1e-12", "round them");
    EXPECT_ERROR(MixtureOrder({1e300, 1e-300}), UserError, "round them");
}

/// Far away, each stream's elements still come one by one, and their numbers follow from the position.
TEST(MixtureOrder, ReachesFarPositionsExactly) {
    const std::vector<double> weights = {0.3141592653589793, 0.2718281828459045, 1.4142135623730951};
    const MixtureOrder order(weights);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (const int64_t far : {int64_t{1'000'000'000'000}, int64_t{1} << 50}) {
        std::vector<int64_t> next(weights.size(), -1);
        for (int64_t p = far; p < far + 500; ++p) {
            const auto [stream, number] = order.at(p);
            if (next[stream] >= 0) {
                EXPECT_EQ(number, next[stream]);
            }
            next[stream] = number + 1;
        }
        int64_t sum = 0;
        for (size_t i = 0; i < weights.size(); ++i) {
            sum += next[i];
            EXPECT_NEAR(static_cast<double>(next[i]), static_cast<double>(far + 500) * weights[i] / total, 4);
        }
        EXPECT_EQ(sum, far + 500) << "all positions before belong to exactly one stream";
    }
}

}  // namespace
}  // namespace argosy::data
