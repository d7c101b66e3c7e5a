#include "preflight/speed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/collective.h"
#include "ops/ops_context.h"
#include "train/dry_step.h"

namespace argosy::preflight {
namespace {

using comm::OpKind;
using layout::Axis;
constexpr layout::AxisSet kShards = {Axis::Shard, Axis::Context};
using Groups = std::vector<std::vector<int>>;

constexpr size_t kPlenty = size_t{1} << 40;

TEST(StepOperations, AreTheHeaviestOfEachCollectiveOverEachAxis) {
    const layout::MeshShape mesh{{1, 2, 2, 1, 1}};
    const std::vector<StepLaunches> traffic = {
        {kShards, 1, OpKind::AllGather, ElementType::BFloat16, 5000, 1},  // the embedding, once
        {kShards, 1, OpKind::AllGather, ElementType::BFloat16, 2000, 8},  // eight blocks carry more
        {kShards, 1, OpKind::ReduceScatter, ElementType::Float32, 2000, 8},
        {Axis::Replicate, 1, OpKind::AllReduce, ElementType::Float32, 10001, 1},
    };
    const auto operations = step_operations(traffic, mesh, kPlenty);
    ASSERT_EQ(operations.size(), 3);
    EXPECT_STREQ(operations[0].kind.collective->name, "all_gather");
    EXPECT_EQ(operations[0].axes, "dp_shard");
    EXPECT_EQ(operations[0].groups, (Groups{{0, 1}, {2, 3}}));
    EXPECT_EQ(operations[0].kind.bytes, 4000);
    EXPECT_EQ(operations[0].kind.reduction, std::nullopt);
    EXPECT_EQ(operations[1].kind.bytes, 8000);
    EXPECT_EQ(operations[1].kind.reduction, Reduction::Sum);
    EXPECT_EQ(operations[2].groups, (Groups{{0, 2}, {1, 3}}));
    EXPECT_EQ(operations[2].kind.bytes, 40004);
}

TEST(StepOperations, AreMeasuredUpToALimit) {
    const layout::MeshShape mesh{{1, 1, 4, 1, 1}};
    const std::vector<StepLaunches> traffic = {
        {kShards, 1, OpKind::AllGather, ElementType::Float32, 1 << 20, 1}};
    const auto operations = step_operations(traffic, mesh, 1 << 16);
    ASSERT_EQ(operations.size(), 1);
    EXPECT_EQ(operations[0].kind.bytes, 1 << 16);
    EXPECT_EQ(operations[0].launch_bytes, 4 << 20);
}

TEST(StepOperations, KeepRanksThatHoldTheSameKeyHeadsTogether) {
    const layout::MeshShape mesh{{1, 1, 1, 1, 4}};
    const std::vector<StepLaunches> traffic = {
        {Axis::Tensor, 2, OpKind::AllReduce, ElementType::Float32, 100, 1},
        {Axis::Tensor, 1, OpKind::AllReduce, ElementType::Float32, 300, 1},
        {Axis::Pipeline, 1, OpKind::Send, ElementType::Float16, 100, 1}};
    const auto operations = step_operations(std::span(traffic).first(2), mesh, kPlenty);
    ASSERT_EQ(operations.size(), 2);
    EXPECT_EQ(operations[0].groups, (Groups{{0, 1}, {2, 3}}));
    EXPECT_EQ(operations[1].groups, (Groups{{0, 1, 2, 3}}));
    const auto send = step_operations(std::span(traffic).subspan(2), {{4, 1, 1, 1, 1}}, kPlenty);
    EXPECT_STREQ(send[0].kind.collective->name, "sendrecv");
}

// A recorded all-to-all has the elements of all ranks, and the benchmark's size is that of one rank's buffer.
TEST(StepOperations, MeasureAnAllToAllWithEqualParts) {
    const layout::MeshShape mesh{{1, 1, 4, 1, 1}};
    const comm::RecordedOp op{.group = "dp_shard",
                              .size = 4,
                              .kind = OpKind::AllToAll,
                              .type = ElementType::BFloat16,
                              .num_elements = 4 * 1000,
                              .parts = {700, 1600}};
    std::vector<StepLaunches> step;
    add_launch(step, {{op}}, mesh);
    const auto operations = step_operations(step, mesh, kPlenty);
    ASSERT_EQ(operations.size(), 1);
    EXPECT_EQ(operations[0].name(), "alltoall over dp_shard");
    EXPECT_EQ(operations[0].launch_bytes, 2000);
    EXPECT_EQ(operations[0].kind.bytes, 4 * 496) << "whole pieces of 16 bytes";
}

std::vector<std::string> names(const std::vector<StepOperation>& operations) {
    std::vector<std::string> all;
    for (const StepOperation& each : operations) all.push_back(each.axes + " " + each.kind.collective->name);
    std::ranges::sort(all);
    return all;
}

/// The operations of the steps of a tiny model's pipeline stages.
std::vector<StepOperation> operations_of(const layout::MeshShape& mesh, train::TrainerOptions options) {
    options.spec = {.name = "llama3",
                    .vocab_size = 64,
                    .dim = 32,
                    .num_layers = 4,
                    .num_heads = 4,
                    .num_kv_heads = 2,
                    .head_dim = 8,
                    .hidden_dim = 48,
                    .experts = options.spec.experts};
    options.model.seq_len = 16;
    options.num_microbatches = 4;
    const ops::OpsContext tensors;
    std::vector<StepLaunches> step;
    comm::Recording recording({.launched = [&](const auto& launch) { add_launch(step, launch.ops, mesh); }});
    for (int stage = 0; stage < mesh.degree(Axis::Pipeline); ++stage) {
        train::record_step(options, mesh, mesh.rank({stage, 0, 0, 0, 0}), recording);
    }
    return step_operations(step, mesh, kPlenty);
}

using Names = std::vector<std::string>;

TEST(StepOperations, AreThoseOfARecordedStep) {
    EXPECT_EQ(names(operations_of({{1, 1, 1, 1, 1}}, {})), Names());
    EXPECT_EQ(names(operations_of({{1, 2, 2, 1, 1}}, {})),
              (Names{"dp_replicate all_reduce", "dp_shard all_gather", "dp_shard reduce_scatter"}));
    EXPECT_EQ(names(operations_of({{2, 1, 1, 1, 2}}, {.stage_layers = {2, 2}})),
              (Names{"pp sendrecv", "tp all_gather", "tp all_reduce", "tp reduce_scatter"}));
    EXPECT_EQ(names(operations_of({{1, 1, 1, 2, 1}},
                                  {.model = {.context = {parallel::ContextOptions::Rotation::Ring}}})),
              (Names{"cp all_gather", "cp reduce_scatter", "cp sendrecv"}))
        << "the parameters, and attention's ring";
}

// Equal parts are measured, whatever the plan takes for the rank with the most.
TEST(StepOperations, OfExpertsHaveTheirAllToAll) {
    const layout::MeshShape mesh =
        layout::resolve({.shard = 2, .tensor = 2, .expert = 4, .num_experts = 8}, 4);
    for (const double imbalance : {1.0, 2.0}) {
        train::TrainerOptions options;
        options.spec.experts = {.router = {.num_experts = 8, .top_k = 2}, .hidden_dim = 24};
        options.model.planned_imbalance = imbalance;
        const auto operations = operations_of(mesh, options);
        const auto exchange = std::ranges::find_if(operations, [](const StepOperation& each) {
            return each.name() == "alltoall over dp_shard x tp";
        });
        ASSERT_NE(exchange, operations.end());
        EXPECT_EQ(exchange->groups, (Groups{{0, 1, 2, 3}}));
        // A rank has half of a sequence, two slots of a token, a row in bf16 and a weight in fp32.
        EXPECT_EQ(exchange->launch_bytes, 8 * 2 * (2 * 32 + 4));
    }
}

TEST(StepOperations, OfAStepHaveItsBytes) {
    const auto operations = operations_of({{1, 1, 2, 1, 4}}, {});
    const auto of = [&](const std::string& name) {
        return *std::ranges::find_if(operations, [&](const StepOperation& each) {
            return each.axes + " " + each.kind.collective->name == name;
        });
    };
    EXPECT_EQ(of("tp all_gather").launch_bytes, 16 * 32 * 2) << "the tokens of a microbatch in bf16";
    EXPECT_EQ(of("tp all_gather").groups, (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
    EXPECT_EQ(of("dp_shard all_gather").groups.size(), 4);
    // Two ranks share each of the two key heads, and sum the gradients of wk and wv.
    const auto parts = std::ranges::count_if(operations, [](const StepOperation& each) {
        return each.groups == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}};
    });
    EXPECT_EQ(parts, 1);
}

TEST(Timeouts, OfNvidiaSmiAllowForACallThatHangs) {
    EXPECT_GE(Sources().hang_seconds, 15);
    EXPECT_GT(SpeedOptions{.type = at::kFloat}.gpu_seconds(), Sources().hang_seconds);
    EXPECT_EQ((SpeedOptions{.type = at::kFloat, .timeout_seconds = 8}.gpu_seconds()), 4)
        << "the other ranks wait for 8 s";
}

}  // namespace
}  // namespace argosy::preflight
