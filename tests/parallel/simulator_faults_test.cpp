// The simulator detects broken programs: ops are missing, run twice, or are in the wrong order.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "parallel/programs.h"
#include "parallel/simulator.h"

namespace argosy::parallel {
namespace {

using model::RecomputeMode;
using enum UnitOpKind;

constexpr int kNumCases = 60;

ProgramCase random_case(std::mt19937& random) {
    const auto pick = [&](int count) { return static_cast<int>(random() % count); };
    const int ranks = 1 + pick(4);
    std::vector<int> layers;
    for (int stage = 0; stage < ranks; ++stage) layers.push_back(1 + pick(3));
    std::vector<StageUnits> stages = stages_of(layers);
    if (pick(3) > 0) stages = with_sums(stages);
    stages = with_shards(stages, pick(3) > 0);
    if (pick(3) == 0) stages = with_two_sets(stages);
    StageUnits& changed = stages[pick(ranks)];
    for (UnitSet& set : changed.sets[pick(num_units(changed))]) {
        if (pick(2) == 0) set.summed = !set.summed;
        if (pick(2) == 0) set.sharded = !set.sharded;
    }
    if (ranks > 1 && pick(2) == 0) stages = with_table(stages);
    const std::string schedule = std::vector{"1F1B", "GPipe", "InterleavedZeroBubble"}[pick(3)];
    const int microbatches = takes(schedule, 1, ranks, 1) ? 1 + pick(6) : ranks * (1 + pick(2));
    return {.schedule = schedule,
            .shape = {ranks, ranks, microbatches},
            .options = {.stages = stages,
                        .reshard = pick(2) == 0 ? Reshard::EveryPass : Reshard::Never,
                        .reduce_after = pick(2) == 0 ? ReduceAfter::Microbatch : ReduceAfter::Step,
                        .recompute = std::vector{RecomputeMode::None, RecomputeMode::Selective,
                                                 RecomputeMode::Full}[pick(3)]}};
}

std::string fault_of(const std::vector<Program>& programs, const ProgramCase& simulated) {
    return simulate(programs, simulated.shape, simulated.options).fault;
}

/// Calls try_at(case, programs, rank, position) at every position of random cases' programs.
template <class TryAt>
void at_every_op(TryAt try_at) {
    std::mt19937 random(1);
    for (int i = 0; i < kNumCases; ++i) {
        const ProgramCase simulated = random_case(random);
        const std::vector<Program> programs = programs_of(simulated);
        ASSERT_EQ(fault_of(programs, simulated), "");
        for (int rank = 0; rank < simulated.shape.num_ranks; ++rank) {
            for (size_t position = 0; position < programs[rank].ops.size(); ++position) {
                SCOPED_TRACE(fmt::format("case {}, rank {}, op {}: {}", i, rank, position,
                                         describe(programs[rank].ops[position])));
                try_at(simulated, programs, rank, position);
            }
        }
    }
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Whether `fault` can be the result of leaving `op` out.
bool names_missing(const std::string& fault, const UnitOp& op) {
    switch (op.kind) {
        case Gather:
            return says(fault, "its weights are not gathered");
        case Release:
            return says(fault, "gathered already") || says(fault, "stay gathered");
        case Reduce:
            return says(fault, "no such reduction is under way");
        case FinishReduce:
            return says(fault, "is not finished") || says(fault, "is never finished") ||
                   says(fault, "gradients are not complete");
        case Sum:
            return says(fault, "no such sum is under way");
        case FinishSum:
            return says(fault, "is never finished") || says(fault, "gradients are not summed");
        case AddTable:
            return says(fault, "there is no " + describe(op));
        case SendTable:
        case ReceiveTable:  // whichever rank waits for it, or this rank's own AddTable
            return says(fault, "deadlock") || says(fault, "needs the " + describe(op) + " first");
        case SendActivation:
        case SendGradient:
        case ReceiveActivation:
        case ReceiveGradient:  // the rank that waits for it, or gets the next one in its place
            return says(fault, "deadlock") || says(fault, "the channel brings");
        case TakeActivation:
        case TakeGradient:
            return says(fault, "needs the " + describe(op) + " first") || says(fault, "is under way");
        case BackwardWeight:
            return says(fault, "nothing to reduce") || says(fault, "there is no " + describe(op)) ||
                   says(fault, "gradients are not complete");
        default:  // what stands on it; a unit that it alone would have used, or had gradients from
            return says(fault, "needs the " + describe(op) + " first") ||
                   says(fault, "gathered for nothing") || says(fault, "nothing to reduce") ||
                   says(fault, "gradients are not complete");
    }
}

TEST(SimulatorFaults, OpsLeftOut) {
    at_every_op([](const ProgramCase& simulated, std::vector<Program> programs, int rank, size_t position) {
        auto& ops = programs[rank].ops;
        const UnitOp op = ops[position];
        ops.erase(ops.begin() + position);
        const std::string fault = fault_of(programs, simulated);
        EXPECT_TRUE(names_missing(fault, op)) << fault;
    });
}

TEST(SimulatorFaults, OpsTwice) {
    at_every_op([](const ProgramCase& simulated, std::vector<Program> programs, int rank, size_t position) {
        auto& ops = programs[rank].ops;
        ops.insert(ops.begin() + position, UnitOp(ops[position]));
        EXPECT_NE(fault_of(programs, simulated), "");
    });
}

bool is_transfer(const UnitOp& op) {
    return op.unit == -1 || op.kind == SendTable || op.kind == ReceiveTable;
}

bool works(const UnitOp& op) {
    return op.kind == Forward || op.kind == Loss || op.kind == LossInput || op.kind == Recompute ||
           op.kind == BackwardInput || op.kind == BackwardWeight;
}

/// Whether `b` must not run before `a`, which is directly before it. The rule is written here a second time,
/// without the simulator.
bool depends(const UnitOp& b, const UnitOp& a, const LoweringOptions& options) {
    const bool same_unit = a.stage == b.stage && a.unit == b.unit, same_set = same_unit && a.set == b.set;
    if (a.kind == FinishReduce && b.kind == Reduce) return same_set || !same_unit;
    if (a.kind == Reduce && b.kind == FinishReduce) return same_set;
    if (a.kind == Reduce && b.kind == BackwardWeight) return same_unit;  // else b's Reduce has nothing left
    if (a.kind == FinishReduce && (b.kind == Sum || b.kind == SendTable)) return same_set;
    if (a.kind == Sum && b.kind == FinishSum) return same_set;
    if (a.kind == FinishSum && b.kind == SendTable) return same_unit;
    if (is_of_table(a.kind) && b.kind == AddTable) return true;
    if (a.kind == Release && b.kind == Gather) return same_set;
    if (a.kind == Gather && works(b)) return same_unit && needs_weights(b, options);
    if (works(a) && b.kind == Release) return same_unit && needs_weights(a, options);
    if ((a.kind == BackwardWeight || a.kind == Loss) &&
        (b.kind == Reduce || b.kind == Sum || b.kind == SendTable)) {
        return same_unit;
    }
    if (a.slot == -1 || b.slot == -1) return false;
    if (a.microbatch != b.microbatch) return a.slot == b.slot;  // b takes over the slot that a gives up
    // The ops of a microbatch are one chain, except Recompute and BackwardWeight.
    if (b.kind == Recompute) return a.kind == Forward && same_unit;
    if (a.kind == BackwardWeight) return false;
    return b.kind != BackwardWeight || same_unit;
}

// Swapped neighbours are a fault if and only if one needs the other. Pairs of transfers are left out: they
// may depend on each other through other ranks.
TEST(SimulatorFaults, NeighboursSwapped) {
    at_every_op([](const ProgramCase& simulated, std::vector<Program> programs, int rank, size_t position) {
        auto& ops = programs[rank].ops;
        if (position + 1 == ops.size()) return;
        UnitOp &first = ops[position], &second = ops[position + 1];
        if (is_transfer(first) && is_transfer(second)) return;
        const bool harmful = depends(second, first, simulated.options);
        std::swap(first, second);
        const std::string fault = fault_of(programs, simulated);
        EXPECT_EQ(!fault.empty(), harmful) << describe(second) << " and " << describe(first) << ": " << fault;
    });
}

TEST(SimulatorFaults, AnotherSlot) {
    at_every_op([](const ProgramCase& simulated, std::vector<Program> programs, int rank, size_t position) {
        Program& program = programs[rank];
        UnitOp& op = program.ops[position];
        if (op.slot == -1) return;
        op.slot = (op.slot + 1) % program.num_slots;
        EXPECT_EQ(fault_of(programs, simulated) == "", program.num_slots == 1);
        op.slot = program.num_slots;
        EXPECT_TRUE(says(fault_of(programs, simulated), fmt::format("slot {} of", op.slot)));
    });
}

TEST(SimulatorFaults, OpsOfAnotherRankOrNoUnit) {
    at_every_op([](const ProgramCase& simulated, std::vector<Program> programs, int rank, size_t position) {
        UnitOp& op = programs[rank].ops[position];
        if (!works(op)) return;
        const UnitOp whole = op;
        for (const UnitOp& wrong : {UnitOp{op.kind, op.stage + 1, op.unit, op.microbatch, op.slot},
                                    UnitOp{op.kind, op.stage, 7, op.microbatch, op.slot},
                                    UnitOp{op.kind, op.stage, op.unit, 8, op.slot}}) {
            op = wrong;
            const std::string fault = fault_of(programs, simulated);
            EXPECT_TRUE(says(fault, describe(wrong) + ": it ran before, or is not this rank's")) << fault;
        }
        op = whole;
    });
}

size_t position_of(const Program& program, UnitOpKind kind, int unit, int microbatch) {
    const auto at = std::ranges::find_if(program.ops, [&](const UnitOp& op) {
        return op.kind == kind && op.unit == unit && op.microbatch == microbatch;
    });
    EXPECT_NE(at, program.ops.end());
    return at - program.ops.begin();
}

/// Moves the op at `from` to the position after `behind`. REQUIRES: from < behind.
void move_behind(Program& program, size_t from, size_t behind) {
    const auto begin = program.ops.begin();
    std::rotate(begin + from, begin + from + 1, begin + behind + 1);
}

ProgramCase two_ranks(const std::string& schedule) {
    return {schedule, {2, 2, 3}, {.stages = stages_of({1, 1}), .recompute = RecomputeMode::Selective}};
}

TEST(SimulatorFaults, SendsInTheWrongOrder) {
    const ProgramCase simulated = two_ranks("GPipe");
    std::vector<Program> programs = programs_of(simulated);
    move_behind(programs[0], position_of(programs[0], SendActivation, -1, 0),
                position_of(programs[0], SendActivation, -1, 1));
    const std::string fault = fault_of(programs, simulated);
    EXPECT_EQ(fault,
              "rank 1, op 0, ReceiveActivation of stage 1 microbatch 0: the channel brings what is for the "
              "ReceiveActivation of stage 1 microbatch 1 to the ReceiveActivation of stage 1 microbatch 0");
}

TEST(SimulatorFaults, EachWaitsForTheOther) {
    ProgramCase simulated = two_ranks("1F1B");
    simulated.shape.num_microbatches = 1;
    std::vector<Program> programs = programs_of(simulated);
    move_behind(programs[0], position_of(programs[0], SendActivation, -1, 0),
                position_of(programs[0], TakeGradient, -1, 0));
    const std::string fault = fault_of(programs, simulated);
    EXPECT_TRUE(says(fault, "TakeGradient of stage 0 microbatch 0: deadlock")) << fault;
}

/// Moves the op at `from` to the position of the op at `to`. REQUIRES: to < from.
void move_before(Program& program, size_t from, size_t to) {
    const auto begin = program.ops.begin();
    std::rotate(begin + to, begin + from, begin + from + 1);
}

TEST(SimulatorFaults, TwoReceivesUnderWay) {
    const ProgramCase simulated = two_ranks("1F1B");
    std::vector<Program> programs = programs_of(simulated);
    move_before(programs[1], position_of(programs[1], ReceiveActivation, -1, 1), 1);
    EXPECT_TRUE(
        says(fault_of(programs, simulated),
             "ReceiveActivation of stage 1 microbatch 1: the ReceiveActivation of stage 1 microbatch 0 "
             "is under way"));
}

// GPipe's first gradient depends on the last activation. A receive of the gradient that starts before that
// activation is sent arrives, but only if its rank goes on, and if the channel is connected.
TEST(SimulatorFaults, AReceiveThatNeedsALaterSendOfItsRank) {
    const ProgramCase simulated = two_ranks("GPipe");
    std::vector<Program> programs = programs_of(simulated);
    const size_t send = position_of(programs[0], SendActivation, -1, 2);
    move_before(programs[0], position_of(programs[0], ReceiveGradient, -1, 0), send);
    EXPECT_EQ(fault_of(programs, simulated), "");
    const auto missing = [&](size_t position) {
        return missing_after_stop(programs, simulated.shape, simulated.options, /*rank=*/0, position);
    };
    EXPECT_EQ(missing(send + 1), "ReceiveGradient of stage 0 microbatch 0");
    EXPECT_EQ(missing(send + 2), "");
    const Simulation connecting =
        simulate(programs, simulated.shape, simulated.options, {.connects_at_first_message = true});
    EXPECT_TRUE(says(connecting.fault, "ReceiveGradient of stage 0 microbatch 0: deadlock"))
        << connecting.fault;
}

// Rank 0 sends all activations before it receives a gradient, and rank 1 answers each at once. The programs
// are correct as long as two channels of one message each and a receive that starts ahead suffice.
TEST(SimulatorFaults, SendsThatNeedLargerChannels) {
    for (const int microbatches : {1, 2, 3, 4, 5, 6}) {
        ProgramCase eager = two_ranks("GPipe"), answering = two_ranks("1F1B");
        eager.shape.num_microbatches = answering.shape.num_microbatches = microbatches;
        const std::string fault = fault_of({programs_of(eager)[0], programs_of(answering)[1]}, eager);
        EXPECT_EQ(says(fault, "SendActivation of stage 0 microbatch 4: deadlock"), microbatches > 4) << fault;
        EXPECT_EQ(fault.empty(), microbatches <= 4) << fault;
    }
}

TEST(SimulatorFaults, SharedSlot) {
    const ProgramCase simulated = two_ranks("1F1B");
    std::vector<Program> programs = programs_of(simulated);
    for (UnitOp& op : programs[0].ops) op.slot = 0;
    EXPECT_TRUE(says(fault_of(programs, simulated), "slot 0 still holds stage 0 microbatch 0"));
}

TEST(SimulatorFaults, RecomputeWhereNothingWasDropped) {
    ProgramCase simulated = two_ranks("1F1B");
    const std::vector<Program> programs = programs_of(simulated);
    simulated.options.recompute = RecomputeMode::None;
    EXPECT_TRUE(
        says(fault_of(programs, simulated), "Recompute of stage 1 unit 0 microbatch 0: it ran before, or"));
}

TEST(SimulatorFaults, GatherHoistedOverItsOwnRelease) {
    const ProgramCase simulated{"1F1B", {1, 1, 1}, {.stages = with_shards(stages_of({3}))}};
    std::vector<Program> programs = programs_of(simulated);
    auto& ops = programs[0].ops;
    const auto release =
        std::ranges::find_if(ops, [](const UnitOp& op) { return op.kind == Release && op.unit == 1; });
    const auto again =
        std::find_if(release, ops.end(), [](const UnitOp& op) { return op.kind == Gather && op.unit == 1; });
    std::rotate(release, again, again + 1);
    EXPECT_TRUE(
        says(fault_of(programs, simulated), "Gather of stage 0 unit 1: the weights are gathered already"));
}

TEST(SimulatorFaults, CollectivesOfAnUnshardedModel) {
    ProgramCase simulated{"1F1B", {1, 1, 1}, {.stages = with_shards(stages_of({1}))}};
    std::vector<Program> programs = programs_of(simulated);
    simulated.options.stages = with_shards(stages_of({1}), false);
    EXPECT_TRUE(says(fault_of(programs, simulated), "Gather of stage 0 unit 0: weights are not sharded"));
    std::erase_if(programs[0].ops, [](const UnitOp& op) { return op.kind == Gather || op.kind == Release; });
    EXPECT_TRUE(says(fault_of(programs, simulated), "gradients are not sharded"));
}

TEST(SimulatorFaults, SumsOfTheFirstMicrobatchsGradients) {
    ProgramCase simulated{"1F1B", {1, 1, 2}, {.stages = with_sums(stages_of({1}))}};
    for (const bool sharded : {false, true}) {
        simulated.options.stages = with_shards(simulated.options.stages, sharded);
        std::vector<Program> programs = programs_of(simulated);
        auto& ops = programs[0].ops;
        const auto of_block = [](UnitOpKind kind) {
            return [kind](const UnitOp& op) { return op.kind == kind && op.unit == 1; };
        };
        std::erase_if(ops, of_block(Sum));
        const auto first = std::ranges::find_if(ops, of_block(sharded ? FinishReduce : BackwardWeight));
        ops.insert(first + 1, UnitOp{Sum, 0, 1, -1});
        EXPECT_TRUE(
            says(fault_of(programs, simulated), "Sum of stage 0 unit 1: its gradients are not complete"));
    }
}

TEST(SimulatorFaults, SumsThatAreUnknownOrMissing) {
    ProgramCase simulated{"1F1B", {1, 1, 1}, {.stages = with_sums(stages_of({1}))}};
    std::vector<Program> programs = programs_of(simulated);
    simulated.options.stages[0].sets[2][0].summed = false;
    EXPECT_TRUE(says(fault_of(programs, simulated), "Sum of stage 0 unit 2: there is nothing to sum"));
    simulated.options.stages = with_sums(simulated.options.stages);
    std::erase_if(programs[0].ops,
                  [](const UnitOp& op) { return op.unit == 2 && (op.kind == Sum || op.kind == FinishSum); });
    EXPECT_TRUE(says(fault_of(programs, simulated), "the gradients of unit 2 stay without other ranks'"));
}

TEST(SimulatorFaults, ATablesGradientOutOfOrder) {
    ProgramCase simulated{"1F1B", {2, 2, 2}, {.stages = with_table(with_sums(stages_of({1, 1})))}};
    const std::vector<Program> right = programs_of(simulated);
    ASSERT_EQ(fault_of(right, simulated), "");
    // 1. before it is summed
    std::vector<Program> programs = right;
    move_before(programs[0], position_of(programs[0], SendTable, 0, -1),
                position_of(programs[0], FinishSum, 0, -1));
    EXPECT_TRUE(
        says(fault_of(programs, simulated), "SendTable of stage 0 unit 0: its gradients are not summed"));
    // 2. before the last gradient of an activation, which goes the same way
    programs = right;
    move_behind(programs[1], position_of(programs[1], SendGradient, -1, 1),
                position_of(programs[1], SendTable, 1, -1));
    EXPECT_TRUE(
        says(fault_of(programs, simulated),
             "the channel brings what is for the ReceiveTable of stage 0 unit 0 to the ReceiveGradient "
             "of stage 0 microbatch 1"))
        << fault_of(programs, simulated);
    // 3. on one rank alone
    programs = right;
    std::erase_if(programs[1].ops, [](const UnitOp& op) { return is_of_table(op.kind); });
    EXPECT_TRUE(says(fault_of(programs, simulated), "AddTable of stage 0 unit 0: deadlock"))
        << fault_of(programs, simulated);
}

TEST(SimulatorFaults, AnEmbeddingsSumBeforeTheHeadsGradients) {
    ProgramCase simulated{"1F1B", {1, 1, 1}, {.stages = with_shards(with_sums(stages_of({1})))}};
    std::vector<Program> programs = programs_of(simulated);
    auto& ops = programs[0].ops;
    // The head is reduced last.
    std::erase_if(ops, [](const UnitOp& op) {
        return op.kind == Sum || op.kind == FinishSum ||
               (op.unit == 2 && (op.kind == Reduce || op.kind == FinishReduce));
    });
    ops.push_back({Sum, 0, 0, -1});
    EXPECT_TRUE(
        says(fault_of(programs, simulated), "Sum of stage 0 unit 0: the head's gradients are not complete"));
}

}  // namespace
}  // namespace argosy::parallel
