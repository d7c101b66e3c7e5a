// Every schedule over a grid of shapes and options lowers to correct programs with the expected memory and
// time.
#include "parallel/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/programs.h"

namespace argosy::parallel {
namespace {

using model::RecomputeMode;

constexpr int kMaxRanks = 8, kMaxMicrobatches = 12, kMaxMicrobatchesOfTransfers = 16;

/// The numbers of blocks on the stages: equal; growing; none on every second stage; only the head on the
/// last.
std::vector<std::vector<int>> layer_choices(int num_stages) {
    std::vector<int> equal(num_stages, 2), growing, gaps, head_alone(num_stages, 1);
    for (int stage = 0; stage < num_stages; ++stage) {
        growing.push_back(stage % 3 + 1);
        gaps.push_back(stage % 2);
    }
    head_alone.back() = 0;
    return {equal, growing, gaps, head_alone};
}

std::vector<LoweringOptions> policies(const std::vector<StageUnits>& stages) {
    std::vector<LoweringOptions> all;
    const std::vector<StageUnits> replicas = with_sums(stages), shards = with_shards(stages),
                                  both = with_shards(replicas);
    // A second set of each block with a group of its own: of more ranks than one or not, summed or not.
    std::vector<StageUnits> unlike = with_two_sets(both);
    for (StageUnits& units : unlike) {
        for (size_t unit = 0; unit < units.sets.size(); ++unit) {
            if (units.sets[unit].size() > 1)
                units.sets[unit][1] = {.sharded = unit % 3 != 0, .summed = unit % 2 == 0};
        }
    }
    for (const RecomputeMode mode : {RecomputeMode::None, RecomputeMode::Selective, RecomputeMode::Full}) {
        all.push_back({.stages = stages, .recompute = mode});
        all.push_back({.stages = replicas, .recompute = mode});
        all.push_back({.stages = replicas, .recompute = mode, .sums_in_place = false});
        for (const Reshard reshard : {Reshard::EveryPass, Reshard::Never}) {
            for (const ReduceAfter after : {ReduceAfter::Microbatch, ReduceAfter::Step}) {
                all.push_back({shards, reshard, after, mode});
                all.push_back({both, reshard, after, mode});
                all.push_back({unlike, reshard, after, mode, /*sums_in_place=*/false});
            }
        }
    }
    return all;
}

void expect_memory(const Simulation& simulation, const ProgramCase& simulated, int rank) {
    const ScheduleShape& shape = simulated.shape;
    const LoweringOptions& options = simulated.options;
    if (simulated.schedule == "1F1B" || simulated.schedule == "GPipe") {
        const int limit = simulated.schedule == "1F1B" ? shape.num_stages - rank : shape.num_microbatches;
        ASSERT_EQ(simulation.max_in_flight[rank], std::min(limit, shape.num_microbatches));
    } else {  // a moved activation may be in its slot one action earlier
        ASSERT_LE(simulation.max_in_flight[rank], shape.num_stages + shape.num_ranks);
    }
    int units = 0;
    for (const int stage : shape.stages().stages_of(rank)) units += num_units(options.stages[stage]);
    const int held = simulation.max_gathered[rank];
    const bool sharded = options.stages.back().sets_of(options.stages.back().num_layers)[0].sharded;
    if (sharded && options.reshard == Reshard::Never) {
        ASSERT_LE(held, units);
    } else {
        ASSERT_EQ(held, sharded ? std::min(units, 2) : 0);
    }
}

void expect_sound(const ProgramCase& simulated) {
    const auto programs = programs_of(simulated);
    const Simulation simulation = simulate(programs, simulated.shape, simulated.options);
    ASSERT_EQ(simulation.fault, "");
    for (int rank = 0; rank < simulated.shape.num_ranks; ++rank) {
        ASSERT_EQ(programs[rank].num_slots, simulation.max_in_flight[rank]);
        expect_memory(simulation, simulated, rank);
    }
}

/// Whether the first and the last stage are on two ranks.
bool stages_are_apart(const std::string& schedule, int stages_per_rank, int num_ranks) {
    const StageMap stages = shape_of(schedule, stages_per_rank, num_ranks, 1).stages();
    return stages.rank_of(stages.num_stages() - 1) != 0;
}

class SimulatedSchedule : public ::testing::TestWithParam<std::string> {};

TEST_P(SimulatedSchedule, IsSoundForAllShapesAndPolicies) {
    for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
        for (int microbatches = 1; microbatches <= kMaxMicrobatches; ++microbatches) {
            for (const int per_rank : {1, 2, 3}) {
                if (!takes(GetParam(), per_rank, ranks, microbatches)) continue;
                if (per_rank > 1 && ranks > 4) continue;  // schedule_test.cpp has more ranks
                for (const auto& layers : layer_choices(per_rank * ranks)) {
                    const bool two_ends = stages_are_apart(GetParam(), per_rank, ranks);
                    for (LoweringOptions options : policies(stages_of(layers))) {
                        // A table needs ranks of its own; half of the policies have one.
                        if (two_ends && options.recompute != RecomputeMode::None) {
                            options.stages = with_table(options.stages);
                        }
                        SCOPED_TRACE(
                            fmt::format("{} ranks x {}, {} microbatches", ranks, per_rank, microbatches));
                        expect_sound(
                            {GetParam(), shape_of(GetParam(), per_rank, ranks, microbatches), options});
                        if (HasFatalFailure()) return;
                    }
                }
            }
        }
    }
}

// Stages of equal work fill the pipeline once and drain it once in every schedule; only the memory is
// different.
TEST_P(SimulatedSchedule, BubbleIsOneFillAndOneDrain) {
    if (default_stages_per_rank(GetParam()) > 1) GTEST_SKIP() << "schedule_test.cpp has their bubbles";
    for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
        for (int microbatches = 1; microbatches <= kMaxMicrobatches; ++microbatches) {
            for (const int layers : {1, 3}) {
                std::vector<StageUnits> stages(ranks, {.num_layers = layers});
                stages.front().has_embedding = stages.back().has_head = true;
                const ProgramCase simulated{
                    GetParam(), {ranks, ranks, microbatches}, {.stages = with_one_set(stages)}};
                const auto programs = programs_of(simulated);
                const int forward = layers, backward = 2 * layers, loss = 1;
                EXPECT_EQ(simulate(programs, simulated.shape, simulated.options).num_rounds,
                          microbatches * (forward + loss + backward) + (ranks - 1) * (forward + backward))
                    << ranks << " ranks, " << microbatches << " microbatches";
            }
        }
    }
}

/// Calls check(case, programs) for pipelines with `layers` blocks on each stage.
template <class Check>
void for_all_pipelines(const std::string& schedule, int layers, Check check) {
    for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
        const int per_rank = default_stages_per_rank(schedule);
        std::vector<StageUnits> stages(ranks * per_rank, {.num_layers = layers});
        stages.front().has_embedding = stages.back().has_head = true;
        for (int microbatches = 1; microbatches <= kMaxMicrobatchesOfTransfers; ++microbatches) {
            if (!takes(schedule, per_rank, ranks, microbatches)) continue;
            SCOPED_TRACE(fmt::format("{} ranks, {} microbatches", ranks, microbatches));
            const ProgramCase simulated{schedule,
                                        shape_of(schedule, per_rank, ranks, microbatches),
                                        {.stages = with_one_set(stages)}};
            check(simulated, programs_of(simulated));
            if (::testing::Test::HasFatalFailure()) return;
        }
    }
}

/// The program with each receive directly before its Take.
Program without_hoisting(Program program) {
    std::vector<UnitOp> ops;
    for (const UnitOp& op : program.ops) {
        if (is_receive(op.kind)) continue;
        if (is_take(op.kind)) {
            const bool activation = op.kind == UnitOpKind::TakeActivation;
            ops.push_back({activation ? UnitOpKind::ReceiveActivation : UnitOpKind::ReceiveGradient, op.stage,
                           op.unit, op.microbatch});
        }
        ops.push_back(op);
    }
    program.ops = ops;
    return program;
}

// A transfer that takes no longer than an action is as well hidden as if all receives had started at the
// start of the step. GPipe then pays for the transfers of the first and the last microbatch alone. 1F1B pays
// for more: with so few microbatches in flight, the order of its actions makes stages wait for each other.
TEST_P(SimulatedSchedule, TransfersAreHiddenAsFarAsTheOrderOfActionsAllows) {
    if (default_stages_per_rank(GetParam()) > 1) GTEST_SKIP() << "the weights' halves hide transfers as well";
    constexpr int kLayers = 4;
    for_all_pipelines(GetParam(), kLayers, [&](const ProgramCase& simulated, const auto& programs) {
        std::vector<Program> late;
        for (const Program& program : programs) late.push_back(without_hoisting(program));
        const int num_ranks = simulated.shape.num_ranks, num_microbatches = simulated.shape.num_microbatches;
        for (const int transfer_rounds : {1, kLayers}) {
            const auto rounds = [&](const std::vector<Program>& of, bool ignores_receives) {
                const Simulation simulation =
                    simulate(of, simulated.shape, simulated.options, {transfer_rounds, ignores_receives});
                EXPECT_EQ(simulation.fault, "");
                return simulation.num_rounds;
            };
            const int found = rounds(programs, false);
            ASSERT_EQ(found, rounds(programs, true));
            if (num_microbatches > 1) {
                ASSERT_GT(rounds(late, false), found);
            }
            if (GetParam() != "GPipe") continue;
            const int stage_rounds = 3 * kLayers, loss_rounds = 1;
            ASSERT_EQ(found, num_microbatches * (stage_rounds + loss_rounds) +
                                 (num_ranks - 1) * (stage_rounds + 2 * transfer_rounds));
        }
    });
}

// The call of a channel's first message blocks the host until both ranks have made it.
TEST_P(SimulatedSchedule, ChannelsConnectAtTheirFirstMessages) {
    for_all_pipelines(GetParam(), /*layers=*/1, [](const ProgramCase& simulated, const auto& programs) {
        const Simulation simulation = simulate(programs, simulated.shape, simulated.options,
                                               {.transfer_rounds = 1, .connects_at_first_message = true});
        ASSERT_EQ(simulation.fault, "");
    });
}

// The message of each receive arrives, even if its rank does nothing after the start of the receive.
TEST_P(SimulatedSchedule, MessagesArriveAtARankThatHangs) {
    for_all_pipelines(GetParam(), /*layers=*/1, [](const ProgramCase& simulated, const auto& programs) {
        for (int rank = 0; rank < simulated.shape.num_ranks; ++rank) {
            for (size_t i = 0; i < programs[rank].ops.size(); ++i) {
                if (!is_receive(programs[rank].ops[i].kind)) continue;
                ASSERT_EQ(missing_after_stop(programs, simulated.shape, simulated.options, rank, i + 1), "");
            }
        }
    });
}

TEST_P(SimulatedSchedule, RecomputeCostsItsTime) {
    const int per_rank = default_stages_per_rank(GetParam());
    const std::vector<int> layers = per_rank == 1 ? std::vector{5} : std::vector{3, 2};
    const ProgramCase kept{GetParam(), shape_of(GetParam(), per_rank, 1, 4), {.stages = stages_of(layers)}};
    ProgramCase dropped = kept;
    dropped.options.recompute = RecomputeMode::Full;
    const auto rounds = [](const ProgramCase& simulated) {
        return simulate(programs_of(simulated), simulated.shape, simulated.options).num_rounds;
    };
    EXPECT_EQ(rounds(dropped) - rounds(kept), 4 * 5);
}

INSTANTIATE_TEST_SUITE_P(Schedules, SimulatedSchedule, ::testing::ValuesIn(schedule_names()),
                         [](const auto& name) { return "of_" + name.param; });

}  // namespace
}  // namespace argosy::parallel
