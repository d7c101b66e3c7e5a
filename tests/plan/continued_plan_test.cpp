// Plans of many microbatches and of long pipelines, which are continued from smaller steps, against whole
// steps.
#include "plan/continued_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/ops_context.h"
#include "plan/gpus.h"
#include "setup/options.h"

namespace argosy::plan {
namespace {

using config::PipelineSchedule;

config::JobConfig pipeline(int stages, int tensor, int64_t microbatches, PipelineSchedule schedule) {
    config::JobConfig config;
    config.model.name = "llama3";
    config.model.flavor = "1B";
    config.training.seq_len = 512;
    config.training.local_batch_size = microbatches;
    config.parallelism.pipeline_parallel_degree = stages;
    config.parallelism.pipeline_parallel_schedule = schedule;
    config.parallelism.tensor_parallel_degree = tensor;
    config.parallelism.enable_async_tensor_parallel = config::Switch::On;
    return config;
}

/// A step of all microbatches, of each pipeline rank.
std::vector<RankPlan> whole_step(const config::JobConfig& config, int num_ranks, const Machine& machine) {
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config), num_ranks);
    const train::TrainerOptions options =
        setup::trainer_options(config, setup::choose_model(config.model), mesh);
    std::vector<RankTrace> traces;
    for (const int rank : mesh.group(0, layout::Axis::Pipeline))
        traces.push_back(trace_rank(options, mesh, rank, machine));
    const std::vector<RankTime> times = simulate_step(traces);
    auto waits = all_to_all_waits(traces, times);
    waits.resize(traces.size());
    std::vector<RankPlan> ranks;
    for (size_t i = 0; i < traces.size(); ++i) {
        auto rows = tensor_collectives(traces[i], times[i], mesh.degree(layout::Axis::Tensor));
        ranks.push_back({std::move(traces[i]), times[i], std::move(rows), waits[i]});
    }
    return ranks;
}

void expect_same_bytes(const comm::MovedBytes& found, const comm::MovedBytes& expected) {
    EXPECT_EQ(found.sent, expected.sent);
    EXPECT_EQ(found.received, expected.received);
}

void expect_the_whole_step(const config::JobConfig& config, int num_ranks) {
    const Machine machine = named_gpu("h100");
    const Plan plan = make_plan(config, num_ranks, machine);
    const std::vector<RankPlan> whole = whole_step(config, num_ranks, machine);
    ASSERT_EQ(plan.ranks.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
        SCOPED_TRACE(fmt::format("pipeline rank {}", i));
        const auto& [trace, time, rows, waits] = plan.ranks[i];
        EXPECT_NEAR(waits.exposed, whole[i].all_to_all.exposed, 1e-6 * time.total);
        EXPECT_NEAR(waits.without_overlap, whole[i].all_to_all.without_overlap, 1e-6 * time.total);
        EXPECT_EQ(trace.peak.bytes, whole[i].trace.peak.bytes);
        EXPECT_EQ(trace.peak.held, whole[i].trace.peak.held);
        EXPECT_NEAR(trace.flops / whole[i].trace.flops, 1, 1e-12);
        ASSERT_EQ(trace.moved.size(), whole[i].trace.moved.size());
        for (const auto& [group, moved] : trace.moved)
            expect_same_bytes(moved, whole[i].trace.moved.at(group));
        EXPECT_NEAR(time.total / whole[i].time.total, 1, 1e-6);
        EXPECT_NEAR(time.compute / whole[i].time.compute, 1, 1e-6);
        ASSERT_EQ(rows.size(), whole[i].tensor_collectives.size());
        for (size_t row = 0; row < rows.size(); ++row) {
            EXPECT_EQ(rows[row].number, whole[i].tensor_collectives[row].number) << rows[row].work;
            expect_same_bytes(rows[row].moved, whole[i].tensor_collectives[row].moved);
        }
    }
}

TEST(ContinuedPlan, IsThatOfAllMicrobatches) {
    const ops::OpsContext tensors;
    expect_the_whole_step(pipeline(4, 2, 43, PipelineSchedule::OneForwardOneBackward), 8);
    expect_the_whole_step(pipeline(8, 1, 57, PipelineSchedule::OneForwardOneBackward), 8);
    expect_the_whole_step(pipeline(16, 1, 80, PipelineSchedule::OneForwardOneBackward), 32);
    expect_the_whole_step(pipeline(2, 1, 42, PipelineSchedule::InterleavedOneForwardOneBackward), 4);
    expect_the_whole_step(pipeline(2, 2, 45, PipelineSchedule::ZbvZeroBubble), 4);
    // Rank 0 of several stages needs the most memory in the third round only.
    config::JobConfig deep = pipeline(8, 1, 48, PipelineSchedule::InterleavedOneForwardOneBackward);
    deep.model.name = "qwen3_moe";
    deep.model.flavor = "30B-A3B";
    deep.training.seq_len = 4096;
    auto& layers = deep.parallelism.pipeline_parallel_layers_per_stage;
    layers = std::vector<int64_t>(24, 2);
    layers.front() = 1;
    layers.back() = 3;
    deep.parallelism.expert_parallel_degree = 2;
    expect_the_whole_step(deep, 16);
    config::JobConfig accumulation = pipeline(1, 2, 1, PipelineSchedule::OneForwardOneBackward);
    accumulation.training.global_batch_size = 2 * 40;
    expect_the_whole_step(accumulation, 4);
    accumulation.model.name = "qwen3_moe";
    accumulation.model.flavor = "debugmodel";
    accumulation.parallelism.expert_parallel_degree = 4;
    expect_the_whole_step(accumulation, 4);
}

TEST(ContinuedPlan, OfALongPipelineIsRoughlyThatOfAll) {
    const ops::OpsContext tensors;
    const Machine machine = named_gpu("h100");
    config::JobConfig config = pipeline(16, 2, 64, PipelineSchedule::OneForwardOneBackward);
    config.model.flavor = "70B";
    const Plan rough = make_rough_plan(config, 64, machine), full = make_plan(config, 64, machine);
    EXPECT_NEAR(static_cast<double>(rough.peak_bytes()) / static_cast<double>(full.peak_bytes()), 1, 0.06);
    EXPECT_NEAR(rough.seconds / full.seconds, 1, 0.06);
    EXPECT_EQ(rough.mesh.name(), full.mesh.name());
}

}  // namespace
}  // namespace argosy::plan
