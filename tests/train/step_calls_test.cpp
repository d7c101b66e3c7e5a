// The number of launches between ranks in a whole step: those of the program and one for the
// totals. One rank has the totals alone. The ranks are recorded ones;
// dry_step_test.cpp compares them with real ranks.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "support/communicator_double.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using comm::OpKind;
using parallel::Reshard;

// The tiny llama3 in microbatches of one sample; a block has nine weights and seven biases.
constexpr int kNumBlocks = 5, kNumUnits = kNumBlocks + 2, kBlockParameters = 16,
              kNumParameters = 1 + kBlockParameters * kNumBlocks + 2;

struct Count {
    int launches = 0, operations = 0;  // several operations may go in one launch
    bool operator==(const Count&) const = default;
};
void PrintTo(const Count& count, std::ostream* out) {
    *out << count.launches << " launches of " << count.operations;
}

using Calls = std::map<OpKind, Count>;

struct Expected {
    Layout layout;
    Calls calls;
};

/// The submissions of the second step of the last rank.
std::vector<std::vector<comm::RecordedOp>> step_of_last_rank(const TinyRunOptions& options, int num_ranks) {
    const c10::InferenceMode guard;
    Submissions submissions;
    comm::RecordingCommunicator world(num_ranks - 1, num_ranks, submissions.recording);
    TinyRun run(options, world);
    run.train(0);
    submissions.log.clear();
    run.train(1);
    return submissions.log;
}

/// The gathers of a rank with `num_microbatches`: embedding and blocks in forward, the head, the blocks in
/// backward. The embedding's backward needs no weights.
Count gathers(Reshard reshard, int num_microbatches) {
    if (reshard == Reshard::Never) return {kNumUnits, kNumParameters};
    return {num_microbatches * (kNumUnits + kNumBlocks),
            num_microbatches * (kNumParameters + kBlockParameters * kNumBlocks)};
}

Expected sharded(const std::string& name, const layout::MeshRequest& mesh, Reshard reshard) {
    const int num_microbatches = TinyRun::kGlobalBatch / (mesh.replicate * mesh.shard);
    const Count totals{1, 1};
    const Count replicas = mesh.replicate > 1 ? Count{kNumUnits, kNumParameters} : Count{};
    const Count reductions{num_microbatches * kNumUnits, num_microbatches * kNumParameters};
    const Count sums{totals.launches + replicas.launches, totals.operations + replicas.operations};
    return {{name, mesh, {}, "1F1B", reshard},
            {{OpKind::AllGather, gathers(reshard, num_microbatches)},
             {OpKind::ReduceScatter, reductions},
             {OpKind::AllReduce, sums}}};
}

std::vector<Expected> expectations() {
    return {
        {{"one", {.shard = 1}}, {{OpKind::AllReduce, {1, 1}}}},
        {{"ddp2", {.replicate = 2, .shard = 1}}, {{OpKind::AllReduce, {kNumUnits + 1, kNumParameters + 1}}}},
        sharded("fsdp2", {.shard = 2}, Reshard::EveryPass),
        sharded("fsdp2_never", {.shard = 2}, Reshard::Never),
        sharded("fsdp4", {.shard = 4}, Reshard::EveryPass),
        sharded("hsdp2x2", {.replicate = 2, .shard = 2}, Reshard::EveryPass),
        sharded("hsdp2x2_never", {.replicate = 2, .shard = 2}, Reshard::Never)};
}

constexpr parallel::Precision kWide{at::kDouble, at::kDouble, at::kDouble};
constexpr parallel::Precision kRoundedGradients{at::kFloat, at::kFloat, at::kFloat, /*bf16_gradients=*/true};

void expect_calls(const Expected& expected, const parallel::Precision& precision, bool unit_grad_norms) {
    const layout::MeshRequest& mesh = expected.layout.mesh;
    const auto log = step_of_last_rank(
        {.layout = expected.layout, .precision = precision, .unit_grad_norms = unit_grad_norms},
        mesh.replicate * mesh.shard);
    Calls calls;
    for (const auto& launch : log) {
        ++calls[launch[0].kind].launches;
        for (const comm::RecordedOp& op : launch) ++calls[op.kind].operations;
    }
    EXPECT_EQ(calls, expected.calls);
    EXPECT_EQ(log.back()[0].group, "world") << "the totals come last";
}

TEST(StepCalls, AreThoseOfTheProgramAndTheTotals) {
    for (const Expected& expected : expectations()) {
        SCOPED_TRACE(expected.layout.name);
        for (const bool unit_grad_norms : {false, true}) expect_calls(expected, kWide, unit_grad_norms);
        expect_calls(expected, kRoundedGradients, /*unit_grad_norms=*/false);
    }
}

/// The number of submissions of a step of four ranks over `group` before each sum over replicas, and at last
/// in the whole step.
std::vector<int> submitted_before_sums(const Layout& layout, const std::string& group) {
    std::vector<int> before;
    int num_submitted = 0;
    for (const auto& launch : step_of_last_rank({.layout = layout, .microbatch_size = 2}, 4)) {
        num_submitted += launch[0].group == group;
        if (launch[0].group == "dp_replicate") before.push_back(num_submitted);
    }
    before.push_back(num_submitted);
    return before;
}

// A unit's backward submits operations of its own over the tensor axis, which show when it runs. Each unit's
// sum over replicas stands before all that the units below it submit in the last microbatch's backward. The
// norms are not among these sums: they are summed over both axes at once.
TEST(StepCalls, SumsOverReplicasStartBeforeTheBackwardOfEarlierUnits) {
    const std::vector<int> before =
        submitted_before_sums({"ddp2_tp2", {.replicate = 2, .shard = 1, .tensor = 2}}, "tp");
    ASSERT_EQ(before.size(), kNumUnits + 1);
    for (int unit = 1; unit <= kNumBlocks; ++unit) EXPECT_LT(before[unit - 1], before[unit]) << unit;
    // Blocks are alike.
    for (int unit = 2; unit <= kNumBlocks; ++unit) {
        EXPECT_EQ(before[unit] - before[unit - 1], before[1] - before[0]) << unit;
    }
}

// The reduction of a unit over the shards starts directly after the unit's backward. When the unit's sum over
// replicas starts, the backward of the unit below has run, and its reduction comes next.
TEST(StepCalls, SumsOverReplicasOfShardsStartBesideTheNextReduction) {
    const Layout layout{"hsdp2x2", {.replicate = 2, .shard = 2}, {}, "1F1B", Reshard::Never};
    const std::vector<int> before = submitted_before_sums(layout, "dp_shard");
    ASSERT_EQ(before.size(), kNumUnits + 1);
    for (int unit = 1; unit <= kNumBlocks; ++unit) EXPECT_EQ(before[unit] - before[unit - 1], 1) << unit;
    EXPECT_EQ(before[kNumBlocks], before[kNumBlocks + 1] - 1) << "the embedding's comes after its reduction";
}

int count(const std::vector<parallel::UnitOp>& ops, parallel::UnitOpKind kind) {
    return static_cast<int>(std::ranges::count(ops, kind, &parallel::UnitOp::kind));
}

// The counts that the tests above expect are those of the programs.
TEST(StepCalls, ProgramsHoldTheGathersAndReductionsExpected) {
    constexpr int kNumMicrobatches = 4;
    for (const Reshard reshard : {Reshard::EveryPass, Reshard::Never}) {
        const parallel::LoweringOptions options{.stages = {{.num_layers = 1 + kNumBlocks,
                                                            .has_embedding = true,
                                                            .has_head = true,
                                                            .sets = {kNumUnits, {{.sharded = true}}}}},
                                                .reshard = reshard};
        const auto ops =
            parallel::lower(parallel::schedule("1F1B", {1, 1, kNumMicrobatches})[0], options).ops;
        EXPECT_EQ(count(ops, parallel::UnitOpKind::Gather), gathers(reshard, kNumMicrobatches).launches);
        EXPECT_EQ(count(ops, parallel::UnitOpKind::Reduce), kNumMicrobatches * kNumUnits);
    }
}

}  // namespace
}  // namespace argosy::testing
