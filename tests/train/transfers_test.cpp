// A stage of a pipeline receives each message while it computes the action before the one that needs it. This
// changes neither losses nor gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/executor.h"
#include "parallel/parallel_model.h"
#include "parallel/transfers.h"
#include "support/communicator_double.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using comm::OpKind;
using parallel::Reshard;
using parallel::UnitOp;
using parallel::UnitOpKind;

constexpr parallel::Precision kMixed{at::kFloat, at::kBFloat16, at::kFloat};

std::vector<Layout> pipelines() {
    if (world().size() == 2) {
        return {{"pp2", {.pipeline = 2}, {3, 2}},
                {"pp2_gpipe", {.pipeline = 2}, {1, 4}, "GPipe"},
                {"pp2_interleaved", {.pipeline = 2}, {1, 2, 1, 1}, "Interleaved1F1B"},
                {"pp2_zbv", {.pipeline = 2}, {2, 1, 1, 1}, "ZBVZeroBubble"}};
    }
    return {{"pp4", {.pipeline = 4}, {1, 2, 2, 0}},
            {"pp4_gpipe", {.pipeline = 4}, {2, 1, 1, 1}, "GPipe"},
            {"tp2_pp2", {.pipeline = 2, .tensor = 2}, {2, 3}},
            {"fsdp2_pp2", {.pipeline = 2, .shard = 2}, {3, 2}},
            {"ddp2_pp2_never", {.pipeline = 2, .replicate = 2}, {3, 2}, "1F1B", Reshard::Never}};
}

/// The program that a rank of the run executes.
parallel::Program program_of(const Layout& layout, TinyRun& run, int num_microbatches) {
    const comm::Mesh& mesh = run.mesh();
    const auto placement =
        parallel::place_parameters(run.trainer().model().spec(), mesh.shape(), layout.stage_layers,
                                   parallel::stage_order(layout.schedule));
    const parallel::LoweringOptions options{.stages = parallel::stage_units(placement),
                                            .reshard = layout.reshard,
                                            .reduce_after = parallel::ReduceAfter::Step};
    const parallel::StageMap& stages = placement.stages;
    const auto actions = parallel::schedule(
        layout.schedule,
        {stages.num_stages(), stages.num_ranks(), num_microbatches, parallel::stage_order(layout.schedule)});
    const int rank = mesh.coordinate(layout::Axis::Pipeline);
    return parallel::lower(with_transfers(actions, stages)[rank], options);
}

/// The program with each receive directly before its Take.
parallel::Program without_hoisting(parallel::Program program) {
    std::vector<UnitOp> ops, receives;
    for (const UnitOp& op : program.ops) {
        if (is_receive(op.kind)) {
            receives.push_back(op);
            continue;
        }
        if (is_take(op.kind)) {
            const bool activation = op.kind == UnitOpKind::TakeActivation;
            const UnitOpKind kind = activation ? UnitOpKind::ReceiveActivation : UnitOpKind::ReceiveGradient;
            const auto receive = std::ranges::find_if(receives, [&](const UnitOp& one) {
                return one.kind == kind && one.stage == op.stage && one.microbatch == op.microbatch;
            });
            ops.push_back(*receive);
        }
        ops.push_back(op);
    }
    program.ops = ops;
    return program;
}

/// The loss and all gradients of this rank.
std::vector<at::Tensor> results_of(TinyRun& run, const parallel::Program& program) {
    parallel::ParallelModel& model = run.trainer().model();
    parallel::Executor executor(model, run.mesh(), program, {});
    parallel::reset_gradients(model);
    std::vector<at::Tensor> results = {
        executor.run(run.batch(0).microbatches, /*loss_weight=*/1, /*update=*/0)};
    for (const auto& parameter : model.parameters()) results.push_back(parameter->gradient().sum.clone());
    return results;
}

TEST(Transfers, LossesAndGradientsHaveTheBitsOfLateReceives) {
    for (const Layout& layout : pipelines()) {
        SCOPED_TRACE(layout.name);
        TinyRun run({.layout = layout, .precision = kMixed}, world());
        const auto num_microbatches = static_cast<int>(run.batch(0).microbatches.size());
        const parallel::Program program = program_of(layout, run, num_microbatches);
        const parallel::Program late = without_hoisting(program);
        EXPECT_NE(program.ops, late.ops);
        const auto found = results_of(run, program), expected = results_of(run, late);
        ASSERT_GT(found.size(), 1u);
        for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
        double sum = 0;
        for (const at::Tensor& gradient : found) sum += gradient.abs().sum().item<double>();
        EXPECT_GT(sum, 0);
    }
}

TEST(Executor, ItsObserverSeesTheOperationsOfTheProgramInOrder) {
    const Layout layout = pipelines().back();
    TinyRun run({.layout = layout}, world());
    const auto batches = run.batch(0).microbatches;
    const parallel::Program program = program_of(layout, run, static_cast<int>(batches.size()));
    std::vector<UnitOp> seen;
    int num_ends = 0;
    parallel::Executor executor(
        run.trainer().model(), run.mesh(), program,
        {.observer = [&](const UnitOp* op) { op ? seen.push_back(*op) : void(++num_ends); }});
    parallel::reset_gradients(run.trainer().model());
    executor.run(batches, /*loss_weight=*/1, /*update=*/0);
    EXPECT_EQ(seen, program.ops);
    EXPECT_EQ(num_ends, 1);
}

/// What a rank does, in order: r and s are the submissions of a receive and a send, w is the wait for a
/// receive, c is the submission of a collective over the tensor axis, which is part of a computation.
using Events = std::string;

/// Adds the end of the wait to `events`.
class NotingCompletion : public comm::Completion {
  public:
    NotingCompletion(comm::Pending pending, Events& events) : pending_(std::move(pending)), events_(events) {}
    void wait() override {
        pending_.wait();
        events_ += 'w';
    }

  private:
    comm::Pending pending_;
    Events& events_;
};

Events events_of_a_step(const Layout& layout) {
    Events events;
    CommunicatorDouble noting(world(), [&](comm::Communicator& group, std::span<const comm::Op> ops) {
        const OpKind kind = ops[0].kind;
        if (group.name() == "tp") events += 'c';
        if (kind == OpKind::Send) events += 's';
        if (kind != OpKind::Receive) return group.submit(ops);
        events += 'r';
        return comm::Pending(std::make_unique<NotingCompletion>(group.submit(ops), events), {}, nullptr);
    });
    TinyRun run({.layout = layout}, noting);
    run.train(0);
    events.clear();
    run.train(1);
    return events;
}

// A receive and its wait enclose the collectives of a whole action, and the send of its result.
TEST(Transfers, AreReceivedWhileTheActionBeforeComputes) {
    if (world().size() != 4) GTEST_SKIP() << "wants 4 ranks";
    for (const char* schedule : {"1F1B", "GPipe"}) {
        SCOPED_TRACE(schedule);
        const Events events = events_of_a_step({"tp2_pp2", {.pipeline = 2, .tensor = 2}, {2, 3}, schedule});
        std::vector<std::string> meanwhile;
        for (size_t begin = events.find('r'); begin != Events::npos; begin = events.find('r', begin + 1)) {
            meanwhile.push_back(events.substr(begin + 1, events.find('w', begin) - begin - 1));
        }
        ASSERT_EQ(meanwhile.size(), TinyRun::kGlobalBatch) << events;
        EXPECT_EQ(meanwhile[0], "") << events;
        for (size_t i = 1; i < meanwhile.size(); ++i) {
            EXPECT_GE(std::ranges::count(meanwhile[i], 'c'), 4) << events;
        }
    }
}

}  // namespace
}  // namespace argosy::testing
