#include "bench/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace argosy::bench {
namespace {

TEST(Distribution, PercentilesAreTimesThatWereTaken) {
    std::vector<double> times(200);
    std::iota(times.begin(), times.end(), 1);
    std::reverse(times.begin(), times.end());
    const Distribution found = distribution_of(times);
    EXPECT_EQ(found.min, 1);
    EXPECT_EQ(found.max, 200);
    EXPECT_EQ(found.p50, 100);  // half of them do not exceed it
    EXPECT_EQ(found.p99, 198);
    EXPECT_DOUBLE_EQ(found.mean, 100.5);
}

TEST(Distribution, OfFewTimesThe99thIsTheLargest) {
    const std::vector<double> three = {5, 1, 3};
    EXPECT_EQ(distribution_of(three).p50, 3);
    EXPECT_EQ(distribution_of(three).p99, 5);
    const std::vector<double> one = {7};
    EXPECT_EQ(distribution_of(one).p50, 7);
    EXPECT_EQ(distribution_of(one).variation_percent(), 0);
}

TEST(Distribution, VariationIsTheDeviationOfTheWholeSet) {
    const std::vector<double> times = {2, 4, 4, 4, 5, 5, 7, 9};
    EXPECT_DOUBLE_EQ(distribution_of(times).deviation, 2);
    EXPECT_DOUBLE_EQ(distribution_of(times).variation_percent(), 40);
}

}  // namespace
}  // namespace argosy::bench
