#include "train/update_guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace argosy::train {
namespace {

TEST(TrailingWindow, ByHand) {
    TrailingWindow window(4, 4);
    for (const double value : {100.0, 2.0, 4.0, 4.0, 6.0}) window.add(value);  // the first has left
    EXPECT_DOUBLE_EQ(window.mean(), 4);
    const double deviation = std::sqrt(8.0 / 3);
    EXPECT_DOUBLE_EQ(window.value_at(3), 4 + 3 * deviation);
    EXPECT_DOUBLE_EQ(window.zscore_of(4 + 3 * deviation), 3);
    EXPECT_DOUBLE_EQ(window.zscore_of(4 - deviation), -1);
}

TEST(TrailingWindow, HasNoScoresBeforeItHoldsEnough) {
    TrailingWindow window(4, 3);
    for (int i = 0; i < 2; ++i) {
        window.add(i);
        EXPECT_EQ(window.value_at(1), std::numeric_limits<double>::infinity());
        EXPECT_TRUE(std::isnan(window.zscore_of(1e9)));
    }
    window.add(2);
    EXPECT_DOUBLE_EQ(window.value_at(1), 2);
}

TEST(TrailingWindow, OfEqualValuesHasNoRoundingErrors) {
    TrailingWindow window(4, 2);
    for (int i = 0; i < 4; ++i) window.add(3.5);
    EXPECT_LT(window.zscore_of(std::nextafter(3.5, 4)), 1e-6);
    EXPECT_GT(window.zscore_of(3.6), 100);
}

}  // namespace
}  // namespace argosy::train
