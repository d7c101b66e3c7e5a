// A step without data over recorded ranks (comm/recording.h) is the step of real ranks on processors: this
// rank submits the same operations in the same order, and its tensors take the same memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/allocation_log.h"
#include "support/communicator_double.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using model::RecomputeMode;
using parallel::Reshard;

constexpr parallel::Precision kMixed{at::kFloat, at::kBFloat16, at::kFloat};
constexpr parallel::Precision kSingle{at::kFloat, at::kFloat, at::kFloat};
constexpr parallel::Precision kRounded{at::kBFloat16, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true};
constexpr parallel::Precision kDouble{at::kDouble, at::kDouble, at::kDouble};

std::vector<Layout> layouts() {
    switch (world().size()) {
        case 1:
            return {{"one"}};
        case 2:
            return {{"fsdp2", {.shard = 2}},
                    {"fsdp2_never", {.shard = 2}, {}, "1F1B", Reshard::Never},
                    {"ddp2", {.replicate = 2}},
                    {"tp2", {.tensor = 2}},
                    {"pp2", {.pipeline = 2}, {2, 3}},
                    {"pp2_gpipe", {.pipeline = 2}, {2, 3}, "GPipe"},
                    {"pp2_zbv", {.pipeline = 2}, {1, 2, 1, 1}, "ZBVZeroBubble"},
                    {.name = "tp2_async", .mesh = {.tensor = 2}, .tensor = {.overlap_products = true}},
                    {"cp2", {.context = 2}},
                    {.name = "cp2_ring",
                     .mesh = {.context = 2},
                     .context = {.rotation = parallel::ContextOptions::Rotation::Ring}}};
        case 4:
            return {{"fsdp4", {.shard = 4}},
                    {"hsdp2x2", {.replicate = 2, .shard = 2}},
                    {"tp4", {.tensor = 4}},
                    {"pp4", {.pipeline = 4}, {1, 2, 1, 1}},
                    {"fsdp2_tp2", {.shard = 2, .tensor = 2}},
                    {"ddp2_tp2", {.replicate = 2, .tensor = 2}},
                    {"pp2_tp2", {.pipeline = 2, .tensor = 2}, {2, 3}},
                    {"pp2_ddp2", {.pipeline = 2, .replicate = 2}, {2, 3}},
                    {"pp2_fsdp2_never", {.pipeline = 2, .shard = 2}, {2, 3}, "1F1B", Reshard::Never}};
        default:
            return {
                {"hsdp2x2_tp2", {.replicate = 2, .shard = 2, .tensor = 2}},
                {"pp2_hsdp2x2", {.pipeline = 2, .replicate = 2, .shard = 2}, {3, 2}},
                {"pp2_fsdp2_tp2", {.pipeline = 2, .shard = 2, .tensor = 2}, {2, 3}, "1F1B", Reshard::Never}};
    }
}

/// The memory of a step's tensors on one device.
struct StepMemory {
    std::vector<int64_t> allocations;  // bytes of each, in order
    int64_t peak_bytes = 0;
};

/// Trains two steps and measures the second one.
StepMemory train(const TinyRunOptions& options, comm::Communicator& ranks, AllocationLog& memory) {
    TinyRun run(options, ranks);
    run.train(0);
    const train::StepBatch batch = run.batch(1);
    train::Step& step = run.trainer().step();
    memory.start();
    const train::StepResult result = step.update(step.forward_backward(batch), options.lr);
    EXPECT_FALSE(result.skipped);
    EXPECT_EQ(step.num_updates(), 2);
    return {memory.sizes(), memory.peak_bytes()};
}

void expect_same_operations(const Submissions& found, const Submissions& expected) {
    ASSERT_FALSE(expected.log.empty());
    ASSERT_EQ(found.log.size(), expected.log.size());
    for (size_t i = 0; i < found.log.size(); ++i) {
        ASSERT_EQ(found.log[i].size(), expected.log[i].size()) << "in submission " << i;
        for (size_t j = 0; j < found.log[i].size(); ++j) {
            const comm::RecordedOp &one = found.log[i][j], &other = expected.log[i][j];
            ASSERT_TRUE(one == other) << fmt::format(
                "submission {}: {} {} of {} over {} ranks, but really {} {} of {} over {} ranks", i,
                one.group, comm::kind_name(one.kind), one.num_bytes(), one.size, other.group,
                comm::kind_name(other.kind), other.num_bytes(), other.size);
        }
    }
}

/// How the memory of a dry step is compared with that of the real one. LibTorch's kernels for processors make
/// temporary tensors of their own on Path::Plain, and to add a tied table's gradient of another stage in bf16
/// to fp32. A real exchange of slots makes small ones of counts.
enum class Memory { Same, NearlySame, NotCompared };

void expect_same_step(const TinyRunOptions& options, Memory memory) {
    SCOPED_TRACE(options.family + " " + options.layout.name);
    Submissions real, dry;
    CommunicatorDouble ranks = real.recorded(world());
    comm::RecordingCommunicator recorded_ranks(world().rank(), world().size(), dry.recording);
    const StepMemory expected = train(options, ranks, AllocationLog::of<at::kCPU>());
    const StepMemory found = train(options, recorded_ranks, AllocationLog::of<at::kMeta>());
    expect_same_operations(dry, real);
    if (memory == Memory::NearlySame) {
        EXPECT_NEAR(static_cast<double>(found.peak_bytes) / static_cast<double>(expected.peak_bytes), 1,
                    0.02);
    }
    if (memory != Memory::Same) return;
    EXPECT_EQ(found.allocations, expected.allocations);
    EXPECT_EQ(found.peak_bytes, expected.peak_bytes);
}

TEST(DryStep, IsTheRealStep) {
    for (const Layout& layout : layouts()) {
        for (const char* family : {"llama3", "qwen2", "qwen3", "olmo3"}) {
            expect_same_step({.family = family, .layout = layout, .precision = kMixed, .microbatch_size = 2},
                             Memory::Same);
        }
        expect_same_step({.layout = layout, .precision = kDouble, .unit_grad_norms = true},
                         Memory::NotCompared);
        for (const char* family : {"llama3", "qwen2"}) {
            expect_same_step({.family = family,
                              .layout = layout,
                              .precision = kRounded,
                              .recompute = RecomputeMode::Selective,
                              .adamw = {.moments = at::kBFloat16}},
                             tiny_spec(family).tied_embeddings ? Memory::NotCompared : Memory::Same);
        }
        expect_same_step(
            {.family = "qwen3", .layout = layout, .precision = kMixed, .recompute = RecomputeMode::Full},
            Memory::Same);
    }
}

std::vector<Layout> layouts_of_experts() {
    switch (world().size()) {
        case 1:
            return {{"one"}};
        case 2:
            return {{"fsdp2", {.shard = 2}},
                    {"fsdp2_ep2", {.shard = 2, .expert = 2}},
                    {"tp2_ep2", {.tensor = 2, .expert = 2}}};
        case 4:
            return {{"fsdp2_tp2_ep4", {.shard = 2, .tensor = 2, .expert = 4}},
                    {"pp2_cp2_ep2_zbv",
                     {.pipeline = 2, .context = 2, .expert = 2},
                     {1, 2, 1, 1},
                     "ZBVZeroBubble"}};
        default:
            return {{"pp2_fsdp2_tp2_ep4", {.pipeline = 2, .shard = 2, .tensor = 2, .expert = 4}, {2, 3}}};
    }
}

// Each token goes to all experts, so the loads are equal.
TEST(DryStep, OfExpertsIsTheRealStepOfEqualLoads) {
    model::ModelSpec spec = tiny_spec("llama3");
    spec.experts = {.router = {.num_experts = 4, .top_k = 4}, .hidden_dim = 96};
    for (const Layout& layout : layouts_of_experts()) {
        for (const RecomputeMode recompute : {RecomputeMode::None, RecomputeMode::Full}) {
            expect_same_step(
                {.layout = layout,
                 .precision = kSingle,  // in bf16, LibTorch casts the router's gradient to add it
                 .recompute = recompute,
                 .microbatch_size = 2,
                 .spec = spec},
                layout.mesh.expert == 1 ? Memory::Same : Memory::NearlySame);
        }
    }
}

}  // namespace
}  // namespace argosy::testing
