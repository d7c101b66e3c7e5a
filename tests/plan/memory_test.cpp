// The memory of every rank in its plan, against the allocator's count in a run of the same step.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "observe/memory.h"
#include "ops/ops_context.h"
#include "plan/gpus.h"
#include "plan/layouts.h"
#include "plan/rank_trace.h"
#include "support/world.h"
#include "train/muon.h"
#include "train/shared_muon.h"
#include "train/tiny_run.h"
#include "train/whole_norm.h"

namespace argosy::plan {
namespace {

using plan::layouts;
using testing::Layout;

observe::MemoryMeter& meter() {
    static observe::MemoryMeter installed = observe::MemoryMeter::install();
    return installed;
}

struct Types {
    parallel::Precision precision;
    std::optional<at::ScalarType> moments = {};
    std::vector<train::OptimizerChoice> optimizers = {};
};

const std::vector<Types> kTypes = {
    {{at::kFloat, at::kBFloat16, at::kFloat}},
    {{at::kFloat, at::kFloat, at::kFloat}},
    {{at::kFloat, at::kBFloat16, at::kFloat}, {}, {testing::whole_norm()}},
    {{at::kFloat, at::kBFloat16, at::kFloat}, {}, {train::muon({})}},
    {{at::kDouble, at::kDouble, at::kDouble}},
    {{at::kBFloat16, at::kBFloat16, at::kFloat}, at::kBFloat16},
    {{at::kBFloat16, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true}, at::kBFloat16},
};

train::TrainerOptions options_of(const Layout& layout, const std::string& family, const Types& types) {
    return {.spec = testing::tiny_spec(family),
            .model = {.precision = types.precision, .seq_len = 12},
            .stage_layers = layout.stage_layers,
            .num_microbatches = 2,
            .step = {.adamw = {.moments = types.moments}, .optimizers = types.optimizers}};
}

TEST(HeldBytes, EqualThePlanAndTheAllocatorsCount) {
    const ops::OpsContext tensors;
    for (const Layout& layout : layouts()) {
        comm::Mesh mesh(layout::resolve(layout.mesh, testing::world().size()), testing::world());
        for (const char* family : {"llama3", "qwen2"}) {
            for (const Types& types : kTypes) {
                SCOPED_TRACE(layout.name + " " + family + " " + toString(types.precision.master));
                const train::TrainerOptions options = options_of(layout, family, types);
                const HeldBytes planned = planned_bytes(options, mesh.shape(), mesh.world().rank());
                const int64_t before = meter().current_bytes();
                train::Trainer trainer(options, mesh);
                const int64_t counted = meter().current_bytes() - before;
                const HeldBytes held = held_bytes(trainer);
                EXPECT_EQ(held.weights, planned.weights);
                EXPECT_EQ(held.copies, planned.copies);
                EXPECT_EQ(held.gradients, planned.gradients);
                EXPECT_EQ(held.states, planned.states);
                EXPECT_EQ(held.gathered, 0);
                constexpr int64_t kMaxForAngles = 4096;  // of the rotation, and some numbers
                EXPECT_GE(counted, held.total());
                EXPECT_LE(counted, held.total() + kMaxForAngles);
            }
        }
    }
}

// Weights, gradient and two moments in two bytes each.
TEST(HeldBytes, AreEightPerParameterWithEverythingInBf16) {
    comm::Mesh mesh(layout::resolve({.shard = 1}, 1), testing::self());
    train::TrainerOptions options = options_of({"one"}, "llama3", kTypes.back());
    options.spec = model::preset("qwen2", "7B");
    EXPECT_EQ(planned_bytes(options, mesh.shape(), mesh.world().rank()).total(),
              8 * model::num_parameters(options.spec));
    options.model.precision.bf16_gradients = false;
    EXPECT_EQ(planned_bytes(options, mesh.shape(), mesh.world().rank()).total(),
              10 * model::num_parameters(options.spec));
}

TEST(HeldBytes, HaveUnitsThatAreGathered) {
    const ops::OpsContext tensors;
    const Layout layout = layouts()[0];
    comm::Mesh mesh(layout::resolve(layout.mesh, testing::world().size()), testing::world());
    train::Trainer trainer(options_of(layout, "llama3", kTypes[0]), mesh);
    const auto held = [&] { return held_bytes(trainer); };
    parallel::ShardedUnit& unit = trainer.model().stages()[0].units[1];
    if (!unit.sharded()) return;
    const HeldBytes before = held();
    const int64_t counted_before = meter().current_bytes();
    unit.gather();
    unit.weights();
    EXPECT_EQ(held().gathered, meter().current_bytes() - counted_before);
    EXPECT_GT(held().gathered, 0);
    unit.gradients();
    EXPECT_EQ(held().total() - before.total(), meter().current_bytes() - counted_before);
    EXPECT_EQ(held().gradients - before.gradients, 2 * held().gathered) << "fp32 beside bf16";
    unit.release();
    EXPECT_EQ(held().gathered, 0);
}

/// A run whose activations outweigh what a step allocates beside them. Gemma 3 has one table, the others two.
testing::TinyRunOptions step_of(const Layout& layout, const std::string& family) {
    model::ModelSpec spec = family == "llama3"  ? model::preset("llama3", "debugmodel")
                            : family == "olmo3" ? model::preset("olmo3", "7B")
                                                : model::preset("gemma3", "1B");
    spec.vocab_size = 640;
    spec.dim = 64;
    spec.num_layers = 8;
    spec.num_heads = 4;
    spec.num_kv_heads = 2;
    spec.head_dim = 16;
    spec.hidden_dim = 160;
    if (spec.sliding_window) spec.sliding_window = 20;
    return {.layout = layout,
            .precision = kTypes[0].precision,
            .recompute = model::RecomputeMode::Selective,
            .spec = spec,
            .global_batch = 8,
            .seq_len = 64};
}

/// The plan of this rank.
PeakMemory planned_peak(const testing::TinyRunOptions& run, const layout::MeshShape& mesh) {
    const train::TrainerOptions options{.spec = *run.spec,
                                        .model = {.precision = run.precision, .seq_len = run.seq_len},
                                        .stage_layers = run.layout.stage_layers,
                                        .schedule = run.layout.schedule,
                                        .recompute = run.recompute,
                                        .num_microbatches = run.global_batch / mesh.degree(layout::kDataAxes),
                                        .step = {.optimizers = run.optimizers}};
    Machine processor = named_gpu("h100");
    processor.capability = 0;  // so that attention takes the way of the run
    return trace_rank(options, mesh, testing::world().rank(), processor).peak;
}

/// The same of the second step of a run. `planted`: bytes of a tensor beside those of the step.
int64_t measured_peak(const testing::TinyRunOptions& options, int64_t planted = 0) {
    const int64_t before = meter().current_bytes();
    testing::TinyRun run(options, testing::world());
    run.train(0);
    meter().reset_peak();
    const at::Tensor kept = at::empty({planted}, at::kByte);
    run.train(1);
    return meter().peak_bytes() - before;
}

/// The difference between a plan and a run, in words. Empty if it is small.
std::string disagreement(int64_t planned, int64_t measured) {
    constexpr double kMaxShare = 0.01;  // the tokens of a run, which a plan has once
    const double share = static_cast<double>(measured) / static_cast<double>(planned) - 1;
    return std::abs(share) <= kMaxShare
               ? ""
               : fmt::format("{} bytes planned, {} measured: {:+.1f} %", planned, measured, 100 * share);
}

/// The schedules of pipelines whose ranks hold other memory: the first stage has the embedding, the last one
/// the head and, with 1F1B, the fewest activations; the ranks of a V have a stage of either end.
std::vector<Layout> pipelines() {
    if (testing::world().size() == 2) {
        return {{"tensor", {.tensor = 2}},
                {"1F1B", {.pipeline = 2}, {3, 5}},
                {"interleaved", {.pipeline = 2}, {2, 2, 3, 1}, "Interleaved1F1B"},
                {"V", {.pipeline = 2}, {2, 2, 2, 2}, "ZBVZeroBubble"}};
    }
    if (testing::world().size() == 4) {
        return {{"1F1B", {.pipeline = 4}, {2, 2, 2, 2}},
                {"GPipe", {.pipeline = 4}, {2, 2, 3, 1}, "GPipe"},
                {"interleaved", {.pipeline = 4}, {1, 1, 1, 1, 1, 1, 1, 1}, "Interleaved1F1B"},
                {"zero bubble", {.pipeline = 2, .shard = 2}, {2, 2, 2, 2}, "InterleavedZeroBubble"},
                {"V", {.pipeline = 4}, {1, 1, 1, 1, 1, 1, 1, 1}, "ZBVZeroBubble"}};
    }
    return {{"one"}};
}

TEST(PeakMemory, OfEachStageIsPlanned) {
    const ops::OpsContext tensors;
    for (const Layout& layout : pipelines()) {
        for (const std::string family : {"llama3", "llama3 with Muon", "olmo3", "gemma3"}) {
            SCOPED_TRACE(layout.name + ", " + family);
            testing::TinyRunOptions run = step_of(layout, family.substr(0, family.find(' ')));
            if (family.ends_with("Muon")) run.optimizers = {train::muon({})};
            const auto mesh = layout::resolve(layout.mesh, testing::world().size());
            EXPECT_EQ(disagreement(planned_peak(run, mesh).bytes, measured_peak(run)), "");
        }
    }
}

// So few tokens that the update needs the most memory.
TEST(PeakMemory, OfSharedMatricesIsPlanned) {
    const ops::OpsContext tensors;
    const int num_ranks = testing::world().size();
    const testing::TinyRunOptions run{.layout = {.name = "tensor", .mesh = {.tensor = num_ranks}},
                                      .precision = kTypes[0].precision,
                                      .optimizers = {testing::shared_muon()},
                                      .spec = testing::widened("llama3", /*dim=*/100),
                                      .global_batch = 1,
                                      .seq_len = 4};
    const auto mesh = layout::resolve(run.layout.mesh, num_ranks);
    const PeakMemory planned = planned_peak(run, mesh);
    EXPECT_EQ(planned.operation, "the optimizer's update");
    EXPECT_EQ(disagreement(planned.bytes, measured_peak(run)), "");
}

TEST(PeakMemory, OfABufferOutsideThePlanIsFound) {
    const ops::OpsContext tensors;
    const testing::TinyRunOptions run = step_of(pipelines()[0], "llama3");
    const auto mesh = layout::resolve(run.layout.mesh, testing::world().size());
    const int64_t planned = planned_peak(run, mesh).bytes;
    const std::string found = disagreement(planned, measured_peak(run, planned / 25));
    EXPECT_NE(found.find("measured: +4"), std::string::npos) << found;
}

}  // namespace
}  // namespace argosy::plan
