#include "parallel/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "expect_error.h"
#include "parallel/own_schedule.h"
#include "parallel/programs.h"
#include "scratch_folder.h"

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
        case ActionKind::TakeActivation:
            return "ta";
        case ActionKind::SendGradient:
            return "sg";
        case ActionKind::ReceiveGradient:
            return "rg";
        case ActionKind::TakeGradient:
            return "tg";
        case ActionKind::MoveActivation:
            return "ma";
        case ActionKind::MoveGradient:
            return "mg";
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

/// "0F0 2F0": stages, kinds and microbatches.
std::string written(const std::vector<Action>& actions) {
    std::string text;
    for (const auto& [kind, stage, microbatch] : actions) {
        text += fmt::format("{}{}{}{}", text.empty() ? "" : " ", stage, letters(kind), microbatch);
    }
    return text;
}

std::string written(const std::string& name, int num_ranks, int num_microbatches, int rank) {
    return written(schedule(name, {num_ranks, num_ranks, num_microbatches})[rank], rank);
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

TEST(Schedule, InterleavedGoesThroughTheStagesInGroupsOfMicrobatches) {
    const RankActions ranks = schedule("Interleaved1F1B", {4, 2, 4});
    EXPECT_EQ(written(ranks[0]), "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
    EXPECT_EQ(written(ranks[1]), "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
}

TEST(Schedule, WeightsHalvesFillTheWaits) {
    const RankActions ranks = schedule("ZBVZeroBubble", {4, 2, 2, StageOrder::V});
    EXPECT_EQ(written(ranks[0]), "0F0 0F1 3F0 3I0 3F1 3I1 0I0 3W0 0I1 3W1 0W0 0W1");
    EXPECT_EQ(written(ranks[1]), "1F0 2F0 1F1 2F1 2I0 1I0 2I1 1I1 2W0 1W0 2W1 1W1");
    const RankActions one_stage = schedule("InterleavedZeroBubble", {2, 2, 2});
    EXPECT_EQ(written(one_stage[0]), "0F0 0F1 0I0 0W0 0I1 0W1");
    EXPECT_EQ(written(one_stage[1]), "1F0 1I0 1F1 1I1 1W0 1W1");
}

TEST(Transfers, AreNextToTheirActionsAndReceivesOneActionAhead) {
    const ScheduleShape shape{3, 3, 2};
    const RankActions ranks = with_transfers(schedule("1F1B", shape), shape.stages());
    EXPECT_EQ(written(ranks[0], 0), "F0 sa0 F1 sa1 rg0 tg0 rg1 B0 tg1 B1");
    EXPECT_EQ(written(ranks[1], 1), "ra0 ta0 ra1 F0 sa0 ta1 F1 sa1 rg0 tg0 rg1 B0 sg0 tg1 B1 sg1");
    EXPECT_EQ(written(ranks[2], 2), "ra0 ta0 F0 ra1 B0 sg0 ta1 F1 B1 sg1");
}

// The stage before waits for the input's gradient; the weights' half sends and receives nothing.
TEST(Transfers, OfASplitBackwardGoWithTheInputsHalf) {
    using enum ActionKind;
    const RankActions ranks = {{{Forward, 0, 0}, {BackwardInput, 0, 0}, {BackwardWeight, 0, 0}},
                               {{Forward, 1, 0}, {BackwardInput, 1, 0}, {BackwardWeight, 1, 0}}};
    const RankActions found = with_transfers(ranks, StageMap(2, 2));
    EXPECT_EQ(written(found[0]), "0F0 0sa0 0rg0 0tg0 0I0 0W0");
    EXPECT_EQ(written(found[1]), "1ra0 1ta0 1F0 1I0 1sg0 1W0");
}

TEST(Transfers, BetweenStagesOfOneRankAreMoves) {
    const ScheduleShape shape{2, 1, 1, StageOrder::V};
    const RankActions found = with_transfers(schedule("ZBVZeroBubble", shape), shape.stages());
    EXPECT_EQ(written(found[0]), "0F0 1ma0 1F0 1I0 0mg0 0I0 1W0 0W0");
}

TEST(Transfers, ReceivesKeepTheOrderOfTheSends) {
    using enum ActionKind;
    const RankActions ranks = {{{Forward, 0, 0}, {Forward, 0, 1}}, {{Forward, 1, 1}, {Forward, 1, 0}}};
    EXPECT_EQ(written(with_transfers(ranks, StageMap(2, 2))[1]), "1ra0 1ra1 1ta1 1F1 1ta0 1F0");
}

// GPipe's first gradient depends on the last activation, and each later one on nothing that the rank does.
TEST(Transfers, ReceivesStartAfterTheActionsOnWhichTheirMessagesDepend) {
    const ScheduleShape shape{3, 3, 2};
    const RankActions ranks = with_transfers(schedule("GPipe", shape), shape.stages());
    EXPECT_EQ(written(ranks[0], 0), "F0 sa0 F1 sa1 rg0 tg0 rg1 B0 tg1 B1");
    using enum ActionKind;
    const RankActions answers = {{{Forward, 0, 0}, {Backward, 0, 0}, {Forward, 0, 1}, {Backward, 0, 1}},
                                 {{Forward, 1, 0}, {Backward, 1, 0}, {Forward, 1, 1}, {Backward, 1, 1}}};
    EXPECT_EQ(written(with_transfers(answers, StageMap(2, 2))[0], 0), "F0 sa0 rg0 tg0 B0 F1 sa1 rg1 tg1 B1");
}

/// Calls check(name, shape) for all schedules and sizes.
template <class Check>
void for_all_shapes(Check check) {
    for (const std::string& name : schedule_names()) {
        for (int ranks = 1; ranks <= 8; ++ranks) {
            for (int per_rank = 1; per_rank <= 4; ++per_rank) {
                for (const int microbatches : {1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 35, 48}) {
                    if (!takes(name, per_rank, ranks, microbatches)) continue;
                    SCOPED_TRACE(fmt::format("{}: {} ranks x {} stages, {} microbatches", name, ranks,
                                             per_rank, microbatches));
                    check(name, shape_of(name, per_rank, ranks, microbatches));
                    if (::testing::Test::HasFatalFailure()) return;
                }
            }
        }
    }
}

int max_in_flight(const std::vector<Action>& actions) {
    int now = 0, max = 0;
    for (const Action& action : actions) {
        now += action.kind == ActionKind::Forward;
        max = std::max(max, now);
        now -= action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight;
    }
    return max;
}

/// The limit of pairs of stage and microbatch in flight on a rank, without regard to the step's microbatches.
int in_flight_limit(const std::string& name, const ScheduleShape& shape, int rank) {
    const int ranks = shape.num_ranks, stages = shape.num_stages, later = ranks - 1 - rank;
    if (name == "GPipe") return shape.num_microbatches;
    if (name == "ZBVZeroBubble") return 2 * ranks;
    const int interleaved = stages == ranks ? ranks - rank : stages - ranks + 2 * later + 1;
    return name == "InterleavedZeroBubble" ? interleaved + rank : interleaved;
}

TEST(Schedule, EachActionRunsOnceAndNoRankWaitsForever) {
    for_all_shapes([](const std::string& name, const ScheduleShape& shape) {
        const RankActions ranks = schedule(name, shape);
        ASSERT_NO_THROW(check_actions(ranks, shape, name));
        ASSERT_EQ(simulate_actions(with_transfers(ranks, shape.stages()), shape.stages()).deadlock, "");
        for (int rank = 0; rank < shape.num_ranks; ++rank) {
            const int all = shape.num_stages / shape.num_ranks * shape.num_microbatches;
            ASSERT_LE(max_in_flight(ranks[rank]), std::min(all, in_flight_limit(name, shape, rank)));
        }
    });
}

// With F, I and W of one unit for each stage: 3 (ranks - 1) units of a rank's layers in 1F1B and GPipe, the
// same units of a stage in Interleaved1F1B, and a third of that in ZBV. InterleavedZeroBubble waits for up to
// twice as long as ZBV, because a channel holds one message.
TEST(Schedule, BubblesAreAsLongAsTheSchedulesPromise) {
    for_all_shapes([](const std::string& name, const ScheduleShape& shape) {
        if (shape.num_microbatches < shape.num_ranks) return;
        const auto found =
            simulate_actions(with_transfers(schedule(name, shape), shape.stages()), shape.stages());
        const int work = 3 * shape.num_stages / shape.num_ranks * shape.num_microbatches;
        const int once = shape.num_ranks - 1;
        const double wait = found.duration - work;
        if (name == "InterleavedZeroBubble") {
            ASSERT_GE(wait, once);
            ASSERT_LE(wait, 2 * once);
        } else {
            ASSERT_EQ(wait, name == "ZBVZeroBubble" ? once : 3 * once);
        }
        ASSERT_EQ(found.busy, work * shape.num_ranks);
        ASSERT_NEAR(found.bubble_share(shape.num_ranks), wait / found.duration, 1e-12);
    });
}

// Each stage has half of a rank's layers: in ZBV a stage takes half of 1F1B's time.
TEST(Schedule, ZBVIsFasterThan1F1BAtEqualWork) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
        for (const int microbatches : {ranks, 2 * ranks, 4 * ranks}) {
            for (const double transfer : {0.0, 0.1, 0.3}) {
                const auto duration = [&](const std::string& name, int per_rank) {
                    const ScheduleShape shape = shape_of(name, per_rank, ranks, microbatches);
                    const double share = 1.0 / per_rank;
                    return simulate_actions(with_transfers(schedule(name, shape), shape.stages()),
                                            shape.stages(), {share, share, share, transfer})
                        .duration;
                };
                EXPECT_LT(duration("ZBVZeroBubble", 2), duration("1F1B", 1) - (ranks - 1))
                    << ranks << " ranks, " << microbatches << " microbatches, transfer " << transfer;
            }
        }
    }
}

/// LoopedBFS of PyTorch: all microbatches on one stage, then on the rank's next stage; then back.
RankActions breadth_first(const ScheduleShape& shape) {
    RankActions ranks(shape.num_ranks);
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        for (int stage = rank; stage < shape.num_stages; stage += shape.num_ranks) {
            for (int i = 0; i < shape.num_microbatches; ++i) {
                ranks[rank].push_back({ActionKind::Forward, stage, i});
            }
        }
        for (int stage = shape.num_stages - shape.num_ranks + rank; stage >= 0; stage -= shape.num_ranks) {
            for (int i = shape.num_microbatches - 1; i >= 0; --i) {
                ranks[rank].push_back({ActionKind::Backward, stage, i});
            }
        }
    }
    return ranks;
}

TEST(Schedule, BreadthFirstDeadlocksWithOneMessageOnAChannel) {
    for (int num_ranks = 2; num_ranks <= 8; ++num_ranks) {
        for (const int per_rank : {2, 3, 4}) {
            for (int microbatches = 1; microbatches <= 3 * num_ranks + 2; ++microbatches) {
                const ScheduleShape shape{per_rank * num_ranks, num_ranks, microbatches};
                const RankActions ranks = breadth_first(shape);
                ASSERT_NO_THROW(check_actions(ranks, shape, "LoopedBFS"));
                const auto found = simulate_actions(with_transfers(ranks, shape.stages()), shape.stages());
                EXPECT_EQ(found.deadlock.empty(), microbatches < 3 * num_ranks - 1)
                    << num_ranks << " ranks x " << per_rank << ", " << microbatches << ": " << found.deadlock;
            }
        }
    }
}

TEST(Schedule, TransfersAndTimesCount) {
    const ScheduleShape shape{2, 2, 1};
    const auto found = simulate_actions(with_transfers(schedule("1F1B", shape), shape.stages()),
                                        shape.stages(), {1, 2, 3, 0.5});
    EXPECT_EQ(found.duration, 2 * (1 + 2 + 3) + 2 * 0.5);
    EXPECT_EQ(found.busy, 2 * (1 + 2 + 3));
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
    EXPECT_ERROR(StageMap(4, 1, StageOrder::V), UserError, "4 stages on 1 ranks",
                 "layers_per_stage 2 numbers");
}

TEST(Schedule, NamesWhatItDoesNotSupport) {
    EXPECT_EQ(schedule_names(), (std::vector<std::string>{"1F1B", "GPipe", "Interleaved1F1B",
                                                          "InterleavedZeroBubble", "ZBVZeroBubble"}));
    EXPECT_ERROR(schedule("2F2B", {2, 2, 4}), UserError, "pipeline_parallel_schedule", "2F2B", "1F1B",
                 "GPipe");
    EXPECT_ERROR(schedule("1F1B", {4, 2, 4}), UserError, "1F1B", "one stage on each rank",
                 "4 stages on 2 ranks");
    EXPECT_ERROR(schedule("GPipe", {1, 2, 4}), UserError, "GPipe", "not 1 stages on 2 ranks");
    EXPECT_ERROR(schedule("Interleaved1F1B", {5, 2, 4}), UserError, "the same number of stages");
    EXPECT_ERROR(schedule("Interleaved1F1B", {4, 2, 3}), UserError, "a multiple of 2 microbatches",
                 "a step has 3", "pipeline_parallel_microbatch_size");
}

class ScheduleFile : public ::testing::Test {
  protected:
    RankActions read(const std::string& text) {
        std::ofstream(path_) << text;
        return read_schedule(path_);
    }
    /// Throws what a run with this file throws before it trains.
    void check(const std::string& text, const ScheduleShape& shape) {
        check_actions(read(text), shape, "own.csv");
    }
    std::string deadlock(const std::string& text, const StageMap& stages) {
        return simulate_actions(with_transfers(read(text), stages), stages).deadlock;
    }

    ScratchFolder folder_;
    const std::string path_ = (folder_ / "own.csv").string();
};

TEST_F(ScheduleFile, HasTheActionsOfPyTorch) {
    const RankActions ranks = read("0F0,0F1,,0B0, 0I1,0W1\n\"1F0\",1B0,1F1,1I1,1W1\r\n");
    ASSERT_EQ(ranks.size(), 2);
    EXPECT_EQ(written(ranks[0]), "0F0 0F1 0B0 0I1 0W1");
    EXPECT_EQ(written(ranks[1]), "1F0 1B0 1F1 1I1 1W1");
    EXPECT_NO_THROW(check_actions(ranks, {2, 2, 2}, "own.csv"));
}

TEST_F(ScheduleFile, OfEverySchedulesCellsIsThatSchedule) {
    for (const std::string& name : schedule_names()) {
        const ScheduleShape shape = shape_of(name, default_stages_per_rank(name), 3, 6);
        const RankActions ranks = schedule(name, shape);
        std::string text;
        for (const auto& actions : ranks) {
            for (const Action& action : actions) text += cell(action) + ",";
            text += "\n";
        }
        EXPECT_EQ(read(text), ranks);
        EXPECT_EQ(num_stages(ranks), shape.num_stages);
        EXPECT_EQ(stage_order(ranks), shape.order);
    }
}

TEST_F(ScheduleFile, RefusesCellsThatAreNoActions) {
    for (const std::string text :
         {"F0", "0X0", "0F", "0F0x", "0SEND_F0", "-1F0", "0F-1", "99999999999F0", "2147483647F0"}) {
        EXPECT_ERROR(read("0F0,0B0\n" + text), UserError, "own.csv, row 2", "'" + text + "'", "as in 2F0");
    }
    for (const std::string text : {"", "\n\n", ",,\n"}) {
        EXPECT_ERROR(read(text), UserError, "own.csv has no actions", "one row for each rank");
    }
    EXPECT_ERROR(read_schedule("/none.csv"), UserError, "pipeline_parallel_schedule_csv", "/none.csv");
    EXPECT_ERROR(read_schedule(folder_ / ""), UserError, "has no action");
}

TEST_F(ScheduleFile, RefusesActionsThatAreMissingRepeatedOrOutOfPlace) {
    const ScheduleShape shape{2, 2, 1};
    EXPECT_ERROR(check("0F0,0B0", shape), UserError, "1 rows", "pipeline_parallel_degree is 2");
    EXPECT_ERROR(check("0F0,0B0\n1F0", shape), UserError, "has no 1B0",
                 "a stage has F and later B, or in place of B an I and later a W");
    EXPECT_ERROR(check("0F0,0B0\n1B0", shape), UserError, "row 2: 1B0 comes before the F", "F and later B");
    EXPECT_ERROR(check("0F0,0B0\n1F0,1I0", shape), UserError, "has no 1W0");
    EXPECT_ERROR(check("0F0,0B0\n", {1, 1, 2}), UserError, "has no 0F1", "2 microbatches");
    EXPECT_ERROR(check("0F0,0B0\n1F0,1B0,1B0", shape), UserError, "row 2: 1B0 repeats");
    EXPECT_ERROR(check("0F0,0B0\n1F0,1I0,1B0", shape), UserError, "row 2: 1B0 repeats", "each once");
    EXPECT_ERROR(check("0F0,0B0\n1F0,1B0,1W0", shape), UserError, "row 2: 1W0 comes before the I");
    EXPECT_ERROR(check("1F0,1B0\n0F0,0B0", shape), UserError, "row 1: 1F0 belongs into row 2");
    EXPECT_ERROR(check("0F0,0B0\n1F0,1B0,1F1", shape), UserError, "1F1", "it has 1");
}

TEST_F(ScheduleFile, SaysWhoWaitsForWhom) {
    EXPECT_EQ(deadlock("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", StageMap(2, 2)),
              "rank 0 waits for the gradient of stage 1 for microbatch 0 from rank 1; rank 1 waits for the "
              "activation of stage 0 for microbatch 1 from rank 0");
    EXPECT_EQ(deadlock("0F0,0F1,0F2,0F3,0F4,0B0,0B1,0B2,0B3,0B4\n"
                       "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4",
                       StageMap(2, 2)),
              "rank 0 waits until rank 1 receives the activation of stage 0 for microbatch 3; rank 1 waits "
              "until rank 0 receives the gradient of stage 1 for microbatch 0");
}

}  // namespace
}  // namespace argosy::parallel
