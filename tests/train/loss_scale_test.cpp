#include "train/loss_scale.h"

#include <gtest/gtest.h>

namespace argosy::train {
namespace {

TEST(LossScale, DoublesAfterEveryIntervalOfGoodSteps) {
    LossScale scale({.init = 64, .growth_interval = 3});
    for (const double expected : {64, 64, 64, 128, 128, 128, 256}) {
        EXPECT_EQ(scale.value(), expected);
        scale.count_good_step();
    }
}

TEST(LossScale, AnOverflowHalvesItAndStartsTheCountAgain) {
    LossScale scale({.init = 64, .growth_interval = 2});
    scale.count_good_step();
    EXPECT_TRUE(scale.lower());
    EXPECT_EQ(scale.value(), 32);
    scale.count_good_step();
    EXPECT_EQ(scale.value(), 32);
    scale.count_good_step();
    EXPECT_EQ(scale.value(), 64);
}

TEST(LossScale, StopsAtItsFloorAndSaysSo) {
    LossScale scale({.init = 4, .growth_interval = 2});
    EXPECT_TRUE(scale.lower());
    EXPECT_TRUE(scale.lower());
    EXPECT_EQ(scale.value(), LossScale::kMin);
    EXPECT_FALSE(scale.lower());
    EXPECT_EQ(scale.value(), LossScale::kMin);
}

TEST(LossScale, ContinuesFromItsState) {
    LossScale scale({.init = 64, .growth_interval = 3}), resumed({.init = 1, .growth_interval = 3});
    for (int step = 0; step < 5; ++step) scale.count_good_step();
    resumed.restore(scale.state());
    for (int step = 0; step < 5; ++step) {
        EXPECT_EQ(resumed.state(), scale.state());
        scale.count_good_step();
        resumed.count_good_step();
    }
}

}  // namespace
}  // namespace argosy::train
