#include "parallel/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::parallel {
namespace {

const char* letters(ActionKind kind) {
    switch (kind) {
        case ActionKind::Forward:
            return "F";
        case ActionKind::Backward:
            return "B";
        case ActionKind::BackwardInput:
            return "I";
        case ActionKind::BackwardWeight:
            return "W";
        case ActionKind::SendActivation:
            return "sa";
        case ActionKind::ReceiveActivation:
            return "ra";
        case ActionKind::SendGradient:
            return "sg";
        case ActionKind::ReceiveGradient:
            return "rg";
    }
    return "?";
}

/// "F0 B0": kinds and microbatches. Checks that every action belongs to the rank's one stage.
std::string written(const std::vector<Action>& actions, int stage) {
    std::string text;
    for (const Action& action : actions) {
        EXPECT_EQ(action.stage, stage);
        text += fmt::format("{}{}{}", text.empty() ? "" : " ", letters(action.kind), action.microbatch);
    }
    return text;
}

std::string written(const std::string& name, int num_ranks, int num_microbatches, int rank) {
    return written(schedule(name, {num_ranks, num_ranks, num_microbatches}, rank), rank);
}

TEST(Schedule, OneForwardOneBackwardFillsThePipelineFirst) {
    EXPECT_EQ(written("1F1B", 3, 4, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
    EXPECT_EQ(written("1F1B", 3, 4, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
    EXPECT_EQ(written("1F1B", 3, 4, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(Schedule, OneForwardOneBackwardWithFewerMicrobatchesThanStages) {
    EXPECT_EQ(written("1F1B", 4, 2, 0), "F0 F1 B0 B1");
    EXPECT_EQ(written("1F1B", 4, 2, 2), "F0 F1 B0 B1");
    EXPECT_EQ(written("1F1B", 4, 2, 3), "F0 B0 F1 B1");
    EXPECT_EQ(written("1F1B", 4, 1, 0), "F0 B0");
}

TEST(Schedule, GPipeRunsAllForwardsFirst) {
    for (const int rank : {0, 1, 2}) EXPECT_EQ(written("GPipe", 3, 3, rank), "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, OneStageAccumulates) {
    EXPECT_EQ(written("1F1B", 1, 3, 0), "F0 B0 F1 B1 F2 B2");
    EXPECT_EQ(written("GPipe", 1, 3, 0), "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, TransfersAreNextToTheirActions) {
    const ScheduleShape shape{3, 3, 2};
    const auto with = [&](int rank) {
        return written(with_transfers(schedule("1F1B", shape, rank), shape.num_stages), rank);
    };
    EXPECT_EQ(with(0), "F0 sa0 F1 sa1 rg0 B0 rg1 B1");
    EXPECT_EQ(with(1), "ra0 F0 sa0 ra1 F1 sa1 rg0 B0 sg0 rg1 B1 sg1");
    EXPECT_EQ(with(2), "ra0 F0 B0 sg0 ra1 F1 B1 sg1");
}

// The stage before waits for the input's gradient; the weights' half sends and receives nothing.
TEST(Schedule, TransfersOfASplitBackwardGoWithTheInputsHalf) {
    const std::vector<Action> split = {{ActionKind::BackwardInput, 1, 0}, {ActionKind::BackwardWeight, 1, 0}};
    EXPECT_EQ(written(with_transfers(split, /*num_stages=*/3), 1), "rg0 I0 sg0 W0");
}

TEST(Schedule, EveryActionOnceAndForwardBeforeBackward) {
    for (const std::string& name : schedule_names()) {
        for (int ranks = 1; ranks <= 8; ++ranks) {
            for (int microbatches = 1; microbatches <= 12; ++microbatches) {
                for (int rank = 0; rank < ranks; ++rank) {
                    const auto actions = schedule(name, {ranks, ranks, microbatches}, rank);
                    ASSERT_EQ(actions.size(), 2 * microbatches);
                    for (int i = 0; i < microbatches; ++i) {
                        const auto forward = std::ranges::find(actions, Action{ActionKind::Forward, rank, i});
                        const auto backward =
                            std::ranges::find(actions, Action{ActionKind::Backward, rank, i});
                        ASSERT_NE(backward, actions.end());
                        ASSERT_LT(forward, backward);
                    }
                }
            }
        }
    }
}

TEST(StageMap, LoopGoesFromTheFirstRankToTheLastAgainAndAgain) {
    const StageMap map(6, 3);
    std::vector<int> ranks, places;
    for (int stage = 0; stage < 6; ++stage) {
        ranks.push_back(map.rank_of(stage));
        places.push_back(map.local_index(stage));
    }
    EXPECT_EQ(ranks, (std::vector{0, 1, 2, 0, 1, 2}));
    EXPECT_EQ(places, (std::vector{0, 0, 0, 1, 1, 1}));
    EXPECT_EQ(map.stages_of(1), (std::vector{1, 4}));
}

TEST(StageMap, VGoesThereAndBack) {
    const StageMap map(6, 3, StageOrder::V);
    std::vector<int> ranks, places;
    for (int stage = 0; stage < 6; ++stage) {
        ranks.push_back(map.rank_of(stage));
        places.push_back(map.local_index(stage));
    }
    EXPECT_EQ(ranks, (std::vector{0, 1, 2, 2, 1, 0}));
    EXPECT_EQ(places, (std::vector{0, 0, 0, 1, 1, 1}));
    EXPECT_EQ(map.stages_of(0), (std::vector{0, 5}));
    EXPECT_ERROR(StageMap(4, 1, StageOrder::V), RunError, "4 stages on 1 ranks");
}

TEST(Schedule, NamesAnUnknownSchedule) {
    EXPECT_EQ(schedule_names(), (std::vector<std::string>{"1F1B", "GPipe"}));
    EXPECT_ERROR(schedule("2F2B", {2, 2, 4}, 0), UserError, "pipeline_parallel_schedule", "2F2B", "1F1B",
                 "GPipe");
    EXPECT_ERROR(schedule("1F1B", {4, 2, 4}, 0), UserError, "1F1B", "one stage on each rank",
                 "4 stages on 2 ranks");
    EXPECT_ERROR(schedule("GPipe", {1, 2, 4}, 0), UserError, "GPipe", "not 1 stages on 2 ranks");
}

}  // namespace
}  // namespace argosy::parallel
