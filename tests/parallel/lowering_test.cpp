// Each pass is compared with lists written by hand. Units 0 and 1 are layers, unit 2 is the head.
#include "parallel/lowering.h"

#include <gtest/gtest.h>

#include "parallel/programs.h"

namespace argosy::parallel {
namespace {

using model::RecomputeMode;

/// One stage with the embedding, a block and the head.
LoweringOptions one_stage(RecomputeMode mode = RecomputeMode::None) {
    return {.stages = with_shards(stages_of({1})), .recompute = mode};
}

std::vector<UnitOp> expanded(int num_microbatches, const LoweringOptions& options = one_stage()) {
    return expand_units(schedule("1F1B", {1, 1, num_microbatches})[0], options);
}

std::vector<UnitOp> reduced(int num_microbatches, ReduceAfter after) {
    LoweringOptions options = one_stage();
    options.reduce_after = after;
    return insert_reductions(expanded(num_microbatches), options);
}

std::vector<UnitOp> expanded_with_transfers(const std::string& name, const ScheduleShape& shape, int rank,
                                            const LoweringOptions& options) {
    return expand_units(transferred(name, shape)[rank], options);
}

TEST(ExpandUnits, RunsUnitsForwardAndBackward) {
    EXPECT_EQ(written(expanded(2)), "F0.0 F1.0 L2.0 B1.0 W1.0 B0.0 W0.0 F0.1 F1.1 L2.1 B1.1 W1.1 B0.1 W0.1");
}

TEST(ExpandUnits, EachStageRunsItsOwnAndTransfersStay) {
    const LoweringOptions options{.stages = stages_of({0, 2, 0})};
    const ScheduleShape shape{3, 3, 1};
    const auto of_rank = [&](int rank) {
        return written(expanded_with_transfers("1F1B", shape, rank, options));
    };
    EXPECT_EQ(of_rank(0), "F0.0 sa.0 rg.0 tg.0 B0.0 W0.0");
    EXPECT_EQ(of_rank(1), "ra.0 ta.0 F0.0 F1.0 sa.0 rg.0 tg.0 B1.0 W1.0 B0.0 W0.0 sg.0");
    EXPECT_EQ(of_rank(2), "ra.0 ta.0 L0.0 sg.0");  // a head alone
}

TEST(ExpandUnits, SplitBackwardIsTwoRunsOverTheUnits) {
    const std::vector<Action> split = {{ActionKind::BackwardInput, 0, 0}, {ActionKind::BackwardWeight, 0, 0}};
    EXPECT_EQ(written(expand_units(split, one_stage())), "I2.0 B1.0 B0.0 W2.0 W1.0 W0.0");
}

TEST(InsertRecompute, ComesDirectlyBeforeTheUnitsBackward) {
    EXPECT_EQ(written(insert_recompute(expanded(1), one_stage(RecomputeMode::None))), written(expanded(1)));
    for (const RecomputeMode mode : {RecomputeMode::Selective, RecomputeMode::Full}) {
        EXPECT_EQ(written(insert_recompute(expanded(1), one_stage(mode))),
                  "F0.0 F1.0 L2.0 C1.0 B1.0 W1.0 B0.0 W0.0");  // the embedding keeps all that it needs
    }
}

TEST(InsertRecompute, UnitZeroOfALaterStageIsABlock) {
    const LoweringOptions options{.stages = stages_of({1, 1}), .recompute = RecomputeMode::Full};
    EXPECT_EQ(written(insert_recompute({{UnitOpKind::BackwardInput, 1, 0, 0}}, options)), "C0.0 B0.0");
}

TEST(InsertGathers, EveryPassReleasesAfterEachRunOfUses) {
    EXPECT_EQ(
        written(insert_gathers(insert_recompute(expanded(1), one_stage(RecomputeMode::Full)), one_stage())),
        "G0 F0.0 X0 G1 F1.0 X1 G2 L2.0 X2 G1 C1.0 B1.0 X1 W1.0 B0.0 W0.0");  // a table's way back reads
                                                                             // nothing
}

TEST(InsertGathers, EveryPassKeepsWeightsThatAreUsedAgainAtOnce) {
    const std::vector<UnitOp> turn = {{UnitOpKind::Forward, 1, 0, 0}, {UnitOpKind::BackwardInput, 1, 0, 0}};
    EXPECT_EQ(written(insert_gathers(turn, {.stages = with_shards(stages_of({1, 1}))})), "G0 F0.0 B0.0 X0");
}

TEST(InsertGathers, NeverGathersOnceAndReleasesAfterTheLastUse) {
    LoweringOptions options = one_stage();
    options.reshard = Reshard::Never;
    EXPECT_EQ(written(insert_gathers(expanded(2), options)),
              "G0 F0.0 G1 F1.0 G2 L2.0 B1.0 W1.0 B0.0 W0.0 F0.1 X0 F1.1 L2.1 X2 B1.1 X1 W1.1 B0.1 W0.1");
}

TEST(InsertReductions, AfterEachMicrobatchOneAtATime) {
    EXPECT_EQ(written(reduced(2, ReduceAfter::Microbatch)),
              "F0.0 F1.0 L2.0 R2 B1.0 W1.0 D2 R1 B0.0 W0.0 D1 R0 "
              "F0.1 F1.1 L2.1 D0 R2 B1.1 W1.1 D2 R1 B0.1 W0.1 D1 R0 D0");
}

TEST(InsertReductions, AfterTheStepOnlyInTheLastMicrobatch) {
    EXPECT_EQ(written(reduced(2, ReduceAfter::Step)),
              "F0.0 F1.0 L2.0 B1.0 W1.0 B0.0 W0.0 F0.1 F1.1 L2.1 R2 B1.1 W1.1 D2 R1 B0.1 W0.1 D1 R0 D0");
}

/// The list after insert_sums(), if all units have sums.
std::string summed(const std::vector<UnitOp>& ops, LoweringOptions options = one_stage()) {
    options.stages = with_sums(options.stages);
    return written(insert_sums(ops, options));
}

TEST(InsertSums, EachStartsAfterTheLastMicrobatchsGradientsAndAllEndAtTheEnd) {
    EXPECT_EQ(summed(expanded(1)), "F0.0 F1.0 L2.0 S2 B1.0 W1.0 S1 B0.0 W0.0 S0 E2 E1 E0");
    EXPECT_EQ(summed(expanded(2)),
              "F0.0 F1.0 L2.0 B1.0 W1.0 B0.0 W0.0 F0.1 F1.1 L2.1 S2 B1.1 W1.1 S1 B0.1 W0.1 S0 E2 E1 E0");
}

TEST(InsertSums, WaitsForTheLastReduction) {
    EXPECT_EQ(summed(reduced(1, ReduceAfter::Step)),
              "F0.0 F1.0 L2.0 R2 B1.0 W1.0 D2 S2 R1 B0.0 W0.0 D1 S1 R0 D0 S0 E2 E1 E0");
    EXPECT_EQ(summed(reduced(2, ReduceAfter::Microbatch)),
              "F0.0 F1.0 L2.0 R2 B1.0 W1.0 D2 R1 B0.0 W0.0 D1 R0 "
              "F0.1 F1.1 L2.1 D0 R2 B1.1 W1.1 D2 S2 R1 B0.1 W0.1 D1 S1 R0 D0 S0 E2 E1 E0");
}

TEST(InsertSums, EndBeforeTheNextIfTheyTakeMemory) {
    LoweringOptions options = one_stage();
    options.sums_in_place = false;
    EXPECT_EQ(summed(expanded(1), options), "F0.0 F1.0 L2.0 S2 B1.0 W1.0 E2 S1 B0.0 W0.0 E1 S0 E0");
    EXPECT_EQ(summed(reduced(1, ReduceAfter::Step), options),
              "F0.0 F1.0 L2.0 R2 B1.0 W1.0 D2 S2 R1 B0.0 W0.0 D1 E2 S1 R0 D0 E1 S0 E0");
}

TEST(InsertSums, WaitsForBackwardWeightIfThatIsLast) {
    const std::vector<Action> split = {{ActionKind::BackwardInput, 0, 0}, {ActionKind::BackwardWeight, 0, 0}};
    EXPECT_EQ(summed(expand_units(split, one_stage())), "I2.0 B1.0 B0.0 W2.0 S2 W1.0 S1 W0.0 S0 E2 E1 E0");
}

TEST(InsertSums, OnlyOfUnitsThatHaveSums) {
    LoweringOptions options = one_stage();
    EXPECT_EQ(written(insert_sums(expanded(1), options)), written(expanded(1)));
    options.stages = with_sums(options.stages);
    options.stages[0].sets[1][0].summed = false;
    EXPECT_EQ(written(insert_sums(expanded(1), options)), "F0.0 F1.0 L2.0 S2 B1.0 W1.0 B0.0 W0.0 S0 E2 E0");
}

TEST(InsertSums, OfAStageStartInItsLastMicrobatchsBackward) {
    const LoweringOptions options{.stages = stages_of({1, 1})};
    const ScheduleShape shape{2, 2, 2};
    const auto of_rank = [&](int rank) {
        return summed(expanded_with_transfers("1F1B", shape, rank, options), options);
    };
    EXPECT_EQ(
        of_rank(0),
        "F0.0 F1.0 sa.0 F0.1 F1.1 sa.1 rg.0 tg.0 rg.1 B1.0 W1.0 B0.0 W0.0 tg.1 B1.1 W1.1 S1 B0.1 W0.1 S0 "
        "E1 E0");
    EXPECT_EQ(of_rank(1),
              "ra.0 ta.0 F0.0 ra.1 L1.0 B0.0 W0.0 sg.0 ta.1 F0.1 L1.1 S1 B0.1 W0.1 S0 sg.1 E1 E0");
}

/// The list of a rank of two, with a tied table on both.
std::string exchanged(int rank, LoweringOptions options) {
    options.stages = with_table(options.stages);
    const ScheduleShape shape{2, 2, 2};
    const auto ops = insert_sums(expanded_with_transfers("1F1B", shape, rank, options), options);
    return written(insert_table_exchange(ops, options));
}

// The first rank receives during its last backward pass. Each rank sends after its last transfer.
TEST(InsertTableExchange, IsTheLastMessageOnItsChannels) {
    const LoweringOptions options{.stages = stages_of({1, 1})};
    EXPECT_EQ(exchanged(0, options),
              "F0.0 F1.0 sa.0 F0.1 F1.1 sa.1 rg.0 tg.0 rg.1 B1.0 W1.0 B0.0 W0.0 tg.1 rt0 B1.1 W1.1 B0.1 W0.1 "
              "st0 at0");
    EXPECT_EQ(exchanged(1, options),
              "ra.0 ta.0 F0.0 ra.1 L1.0 B0.0 W0.0 sg.0 ta.1 F0.1 L1.1 B0.1 W0.1 sg.1 rt1 st1 at1");
}

TEST(InsertTableExchange, WaitsForTheTablesSum) {
    const LoweringOptions options{.stages = with_sums(stages_of({1, 1}))};
    EXPECT_EQ(
        exchanged(0, options),
        "F0.0 F1.0 sa.0 F0.1 F1.1 sa.1 rg.0 tg.0 rg.1 B1.0 W1.0 B0.0 W0.0 tg.1 rt0 B1.1 W1.1 S1 B0.1 W0.1 S0 "
        "E1 E0 st0 at0");
    EXPECT_EQ(
        exchanged(1, options),
        "ra.0 ta.0 F0.0 ra.1 L1.0 B0.0 W0.0 sg.0 ta.1 F0.1 L1.1 S1 B0.1 W0.1 S0 sg.1 rt1 E1 st1 E0 at1");
}

TEST(InsertTableExchange, NeedsATableWithGradients) {
    const LoweringOptions options{.stages = with_table(stages_of({1, 1})), .forward_only = true};
    const auto forward = expand_units({{ActionKind::Forward, 0, 0}}, options);
    EXPECT_EQ(written(insert_table_exchange(forward, options)), "F0.0 F1.0");
    EXPECT_EQ(written(insert_table_exchange(expanded(1), one_stage())), written(expanded(1)));
}

TEST(HoistGathers, EachStartsWhileTheUnitBeforeComputes) {
    const LoweringOptions options{.stages = with_shards({{.num_layers = 4, .sets = {4, {UnitSet()}}}})};
    const auto gathered = insert_gathers(expand_units({{ActionKind::Forward, 0, 0}}, options), options);
    ASSERT_EQ(written(gathered), "G0 F0.0 X0 G1 F1.0 X1 G2 F2.0 X2 G3 F3.0 X3");
    EXPECT_EQ(written(hoist_gathers(gathered)), "G0 G1 F0.0 X0 G2 F1.0 X1 G3 F2.0 X2 F3.0 X3");
}

TEST(HoistGathers, NeverCrossesTheReleaseOfItsOwnUnit) {
    const LoweringOptions options{.stages = with_shards({{.num_layers = 2, .sets = {2, {UnitSet()}}}})};
    const std::vector<Action> there_and_back = {{ActionKind::Forward, 0, 0},
                                                {ActionKind::ReceiveGradient, 0, 0},
                                                {ActionKind::TakeGradient, 0, 0},
                                                {ActionKind::Backward, 0, 0}};
    const auto gathered = insert_gathers(expand_units(there_and_back, options), options);
    ASSERT_EQ(written(gathered), "G0 F0.0 X0 G1 F1.0 X1 rg.0 tg.0 G1 B1.0 X1 W1.0 G0 B0.0 X0 W0.0");
    EXPECT_EQ(written(hoist_gathers(gathered)),
              "G0 G1 F0.0 X0 F1.0 X1 G1 rg.0 tg.0 G0 B1.0 X1 W1.0 B0.0 X0 W0.0");
}

TEST(HoistGathers, HoldsTwoUnitsAtATimeAtMost) {
    for (const RecomputeMode mode : {RecomputeMode::None, RecomputeMode::Selective, RecomputeMode::Full}) {
        const LoweringOptions options{.stages = with_shards(stages_of({6})), .recompute = mode};
        const auto ops =
            hoist_gathers(insert_gathers(insert_recompute(expanded(3, options), options), options));
        int held = 0, max_held = 0;
        for (const UnitOp& op : ops) {
            held += (op.kind == UnitOpKind::Gather) - (op.kind == UnitOpKind::Release);
            max_held = std::max(max_held, held);
        }
        EXPECT_EQ(max_held, 2);
        EXPECT_EQ(held, 0);
    }
}

// A CSV may run the weights' halves in any order.
TEST(InsertSums, OfAnEmbeddingWaitForTheHeadOnAnotherStageOfTheRank) {
    LoweringOptions options{.stages = with_sums(stages_of({0, 0}))};
    using enum ActionKind;
    const auto ops = expand_units({{BackwardWeight, 0, 0}, {BackwardWeight, 1, 0}}, options);
    ASSERT_EQ(written(ops), "W0.0 W0.0");
    EXPECT_EQ(written(insert_sums(ops, options)), "W0.0 W0.0 S0 S0 E0 E0");
    options.stages[1] = stages_of({0, 0})[1];
    EXPECT_EQ(written(insert_sums(ops, options)), "W0.0 W0.0 S0 E0");
}

std::vector<int> slots(const Program& program) {
    std::vector<int> result;
    for (const UnitOp& op : program.ops) result.push_back(op.slot);
    return result;
}

TEST(AssignSlots, LivesFromTheFirstToTheLastOpOfAMicrobatch) {
    const auto op = [](UnitOpKind kind, int microbatch) { return UnitOp{kind, 0, 0, microbatch}; };
    using enum UnitOpKind;
    const Program program = assign_slots({op(Forward, 0), op(Forward, 1), op(Gather, -1),
                                          op(BackwardInput, 0), op(BackwardWeight, 0), op(Forward, 2),
                                          op(BackwardInput, 1), op(BackwardInput, 2), op(Forward, 3)});
    EXPECT_EQ(slots(program), (std::vector{0, 1, -1, 0, 0, 0, 1, 0, 0}));
    EXPECT_EQ(program.num_slots, 2);
}

TEST(AssignSlots, StagesOfOneRankDoNotShareSlots) {
    using enum UnitOpKind;
    const Program program = assign_slots(
        {{Forward, 0, 0, 0}, {Forward, 2, 0, 0}, {BackwardInput, 2, 0, 0}, {BackwardInput, 0, 0, 0}});
    EXPECT_EQ(slots(program), (std::vector{0, 1, 1, 0}));
}

TEST(AssignSlots, AMoveHasTheSlotsOfBothStages) {
    using enum UnitOpKind;
    const Program program = assign_slots({{Forward, 0, 0, 0},
                                          {MoveActivation, 1, -1, 0},
                                          {Forward, 1, 0, 0},
                                          {BackwardInput, 1, 0, 0},
                                          {MoveGradient, 0, -1, 0},
                                          {Forward, 0, 0, 1},
                                          {BackwardInput, 0, 0, 0}});
    EXPECT_EQ(slots(program), (std::vector{0, 1, 1, 1, 0, 1, 0}));
    EXPECT_EQ(program.ops[1].source_slot, 0);
    EXPECT_EQ(program.ops[4].source_slot, 1);
}

TEST(AssignSlots, AReceiveUnderWayTakesNone) {
    using enum UnitOpKind;
    const Program program = assign_slots({{TakeActivation, 1, -1, 0},
                                          {ReceiveActivation, 1, -1, 1},
                                          {Forward, 1, 0, 0},
                                          {TakeActivation, 1, -1, 1},
                                          {Forward, 1, 0, 1}});
    EXPECT_EQ(slots(program), (std::vector{0, -1, 0, 0, 0}));
    EXPECT_EQ(program.num_slots, 1);
}

TEST(Describe, NamesKindStageUnitAndMicrobatch) {
    using enum UnitOpKind;
    EXPECT_EQ(describe({Forward, 1, 2, 3}), "Forward of stage 1 unit 2 microbatch 3");
    EXPECT_EQ(describe({Gather, 0, 0, -1}), "Gather of stage 0 unit 0");
    EXPECT_EQ(describe({SendActivation, 0, -1, 0}), "SendActivation of stage 0 microbatch 0");
}

TEST(Lower, UnshardedProgramsOnlyCompute) {
    const auto actions = schedule("1F1B", {1, 1, 1})[0];
    const Program program = lower(actions, {.stages = stages_of({1}), .recompute = RecomputeMode::Full});
    EXPECT_EQ(written(program.ops), "F0.0 F1.0 L2.0 C1.0 B1.0 W1.0 B0.0 W0.0");
    EXPECT_EQ(program.num_slots, 1);
    EXPECT_EQ(program.recompute, RecomputeMode::Full);
    EXPECT_FALSE(program.forward_only);
}

TEST(Lower, ShardedProgramsHaveEveryPass) {
    LoweringOptions options = one_stage(RecomputeMode::Selective);
    EXPECT_EQ(written(lower(schedule("1F1B", {1, 1, 1})[0], options).ops),
              "G0 G1 F0.0 X0 G2 F1.0 X1 G1 L2.0 R2 X2 C1.0 B1.0 X1 W1.0 D2 R1 B0.0 W0.0 D1 R0 D0");
}

TEST(Lower, StagesOfAPipelineReceiveAhead) {
    const LoweringOptions options{.stages = with_shards(stages_of({0, 1})), .reshard = Reshard::Never};
    EXPECT_EQ(written(lower(transferred("1F1B", {2, 2, 2})[1], options).ops),
              "G0 ra.0 ta.0 G1 F0.0 ra.1 L1.0 R1 B0.0 W0.0 D1 R0 sg.0 "
              "ta.1 F0.1 L1.1 D0 R1 X1 B0.1 X0 W0.1 D1 R0 sg.1 D0");
}

TEST(Lower, ReplicasOfShardsReduceAndThenSum) {
    LoweringOptions options = one_stage(RecomputeMode::Selective);
    options.stages = with_sums(options.stages);
    EXPECT_EQ(written(lower(schedule("1F1B", {1, 1, 1})[0], options).ops),
              "G0 G1 F0.0 X0 G2 F1.0 X1 G1 L2.0 R2 X2 C1.0 B1.0 X1 W1.0 D2 S2 R1 B0.0 W0.0 D1 S1 R0 D0 S0 E2 "
              "E1 E0");
}

// Each set of unit 1 has its own collectives, which start together; the computations stay one.
TEST(Lower, SetsOfAUnitHaveTheirOwnCollectives) {
    LoweringOptions options{.stages = with_two_sets(with_shards(stages_of({1})))};
    UnitSet& second = options.stages[0].sets[1][1];
    const auto ops = [&] { return written(lower(schedule("1F1B", {1, 1, 1})[0], options).ops); };
    const std::string one_set =
        "G0 G1 F0.0 X0 G2 F1.0 X1 G1 L2.0 R2 X2 B1.0 X1 W1.0 D2 R1 B0.0 W0.0 D1 R0 D0";
    second = {.sharded = false, .summed = false};
    EXPECT_EQ(ops(), one_set);
    second = {.sharded = true, .summed = false};
    EXPECT_EQ(ops(),
              "G0 G1 G1' F0.0 X0 G2 F1.0 X1 X1' G1 G1' L2.0 R2 X2 B1.0 X1 X1' W1.0 D2 R1 R1' B0.0 W0.0 D1 "
              "D1' R0 D0");
    second = {.sharded = true, .summed = true};
    EXPECT_EQ(ops(),
              "G0 G1 G1' F0.0 X0 G2 F1.0 X1 X1' G1 G1' L2.0 R2 X2 B1.0 X1 X1' W1.0 D2 R1 R1' B0.0 W0.0 D1 "
              "D1' S1' R0 D0 E1'");
    second = {.sharded = false, .summed = true};
    EXPECT_EQ(ops(), "G0 G1 F0.0 X0 G2 F1.0 X1 G1 L2.0 R2 X2 B1.0 X1 W1.0 S1' D2 R1 B0.0 W0.0 D1 R0 D0 E1'");
}

}  // namespace
}  // namespace argosy::parallel
