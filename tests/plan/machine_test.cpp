#include "plan/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "expect_error.h"
#include "plan/gpus.h"

namespace argosy::plan {
namespace {

Machine made_up() {
    Machine machine{.name = "made up", .ranks_per_node = 4, .memory_speed = 1e9};
    machine.narrow_flops = 1e12;
    machine.fp32_flops = 1e11;
    machine.in_node.usual = {1e9, 0};
    machine.between_nodes.usual = {1e8, 0};
    return machine;
}

std::vector<int> ranks(int first, int count, int step = 1) {
    std::vector<int> numbers(count);
    for (int i = 0; i < count; ++i) numbers[i] = first + i * step;
    return numbers;
}

/// The seconds of an operation on `bytes` in a group of these ranks.
double seconds(const Machine& machine, comm::OpKind kind, int64_t bytes, const std::vector<int>& group,
               int peer = -1) {
    const comm::RecordedOp op{.group = "g",
                              .rank = 0,
                              .size = static_cast<int>(group.size()),
                              .kind = kind,
                              .type = ElementType::Float32,
                              .num_elements = bytes / 4,
                              .peer = peer,
                              .parts = {bytes, bytes / 2}};
    return machine.seconds({&op, 1}, group);
}

TEST(Machine, TakesTheSlowerOfComputationAndMemory) {
    const Machine machine = made_up();
    EXPECT_DOUBLE_EQ(machine.seconds(ops::Work{ops::WorkKind::Product, at::kBFloat16, 4e12, 1e9}), 4);
    EXPECT_DOUBLE_EQ(machine.seconds(ops::Work{ops::WorkKind::Product, at::kFloat, 4e12, 1e9}), 40);
    EXPECT_DOUBLE_EQ(machine.seconds(ops::Work{ops::WorkKind::Product, at::kBFloat16, 4e9, 7e9}), 7);
    EXPECT_DOUBLE_EQ(machine.seconds(ops::Work{ops::WorkKind::Pass, at::kFloat, 0, 2e9}), 2);
}

TEST(Machine, ProductsWithScalesOfLongBlocksTakeLonger) {
    Machine machine = made_up();
    machine.float8_flops = 2e12;
    ops::Work work{ops::WorkKind::Product, at::ScalarType::Float8_e4m3fn, 4e12, 1e9};
    EXPECT_DOUBLE_EQ(machine.seconds(work), 2);
    work.in_long_blocks = true;
    EXPECT_DOUBLE_EQ(machine.seconds(work), 2 / 0.81);
}

TEST(Machine, SendsAlongTheSlowestLinkOfARing) {
    const Machine machine = made_up();
    constexpr int64_t kGigabyte = 1000000000;
    using enum comm::OpKind;
    // Inside of a node: 3 of 4 parts at 1 GB/s; an all-reduce goes twice around.
    EXPECT_DOUBLE_EQ(seconds(machine, AllGather, kGigabyte, ranks(0, 4)), 0.75);
    EXPECT_DOUBLE_EQ(seconds(machine, AllReduce, kGigabyte, ranks(4, 4)), 1.5);
    // Over two nodes with one rank on each: half of the bytes at 0.1 GB/s.
    EXPECT_DOUBLE_EQ(seconds(machine, ReduceScatter, kGigabyte, ranks(0, 2, 4)), 5);
    // Over two nodes with all four adapters of each.
    EXPECT_DOUBLE_EQ(seconds(machine, AllGather, kGigabyte, ranks(0, 8)), 8.75 / 4);
    EXPECT_DOUBLE_EQ(seconds(machine, Send, kGigabyte, ranks(0, 2), 1), 1);
    EXPECT_DOUBLE_EQ(seconds(machine, Receive, kGigabyte, ranks(0, 2, 4), 1), 10);
    EXPECT_DOUBLE_EQ(seconds(machine, AllReduce, kGigabyte, ranks(2, 1)), 0);
}

TEST(Machine, SendsThePartsOfAnAllToAllAtOnce) {
    Machine machine = made_up();
    constexpr int64_t kGigabyte = 1000000000;
    using enum comm::OpKind;
    EXPECT_DOUBLE_EQ(seconds(machine, AllToAll, kGigabyte, ranks(0, 4)), 1);
    EXPECT_DOUBLE_EQ(seconds(machine, AllToAll, kGigabyte, ranks(0, 2, 4)), 10);
    // Three of the seven others are on the rank's node.
    EXPECT_DOUBLE_EQ(seconds(machine, AllToAll, 7 * kGigabyte, ranks(0, 8)), 40);
    machine.between_nodes.usual.bytes_per_second = 1e12;
    EXPECT_DOUBLE_EQ(seconds(machine, AllToAll, 7 * kGigabyte, ranks(0, 8)), 3);
    EXPECT_DOUBLE_EQ(seconds(machine, AllToAll, 0, ranks(2, 1)), 0);
}

TEST(Machine, HasLatencyForEachHop) {
    Machine machine = made_up();
    machine.in_node.usual.latency_seconds = 1;
    machine.between_nodes.usual.latency_seconds = 10;
    EXPECT_DOUBLE_EQ(seconds(machine, comm::OpKind::AllGather, 0, ranks(0, 4)), 3);
    EXPECT_DOUBLE_EQ(seconds(machine, comm::OpKind::AllReduce, 0, ranks(0, 8)), 2 * (5 * 1 + 2 * 10));
    EXPECT_DOUBLE_EQ(seconds(machine, comm::OpKind::AllToAll, 0, ranks(0, 4)), 1);
    EXPECT_DOUBLE_EQ(seconds(machine, comm::OpKind::AllToAll, 0, ranks(0, 8)), 1 + 10);
}

TEST(Machine, TableHasItsNames) {
    for (const std::string& name : gpu_names()) {
        const Machine machine = named_gpu(name);
        EXPECT_GT(machine.peak(at::kBFloat16), machine.peak(at::kFloat)) << name;
        const double float8 = machine.peak(at::ScalarType::Float8_e5m2);
        EXPECT_NEAR(float8 / machine.peak(at::kBFloat16), machine.capability < 89 ? 0 : 2, 0.03) << name;
    }
}

TEST(Machine, ExpectsTheLargestOfNormalNumbers) {
    // E. g. tables of normal order statistics.
    EXPECT_NEAR(expected_largest(1), 0, 1e-6);
    EXPECT_NEAR(expected_largest(2), 0.56419, 1e-4);
    EXPECT_NEAR(expected_largest(8), 1.42360, 1e-4);
    EXPECT_NEAR(expected_largest(100), 2.50759, 1e-4);
    EXPECT_NEAR(expected_largest(16384), 3.966, 0.01);
}

// 8 GPUs are as fast as the slowest of them. What memory bounds takes no longer.
TEST(Machine, WaitsForTheSlowestOfItsRanks) {
    config::PlanRequest request{.device = "h100"};
    const Machine one = named_gpu(request);
    request.num_ranks = 8;
    const Machine eight = named_gpu(request);
    const ops::Work product{ops::WorkKind::Product, at::kBFloat16, 1e12, 0},
        pass{ops::WorkKind::Pass, at::kFloat, 0, 1e9};
    EXPECT_EQ(one.slowest_of_ranks, 1);
    EXPECT_NEAR((eight.seconds(product) - eight.launch_seconds) / (one.seconds(product) - one.launch_seconds),
                1 + 0.08 / 5.4 * 1.4236, 1e-6);
    EXPECT_EQ(eight.seconds(pass), one.seconds(pass));
}

TEST(Machine, ProductsFollowTheSquareRootOfThePower) {
    config::PlanRequest request{.device = "h100"};
    const double share = named_gpu(request).product_share;
    EXPECT_DOUBLE_EQ(share, 0.694);
    request.power = 175;
    EXPECT_DOUBLE_EQ(named_gpu(request).product_share, share / 2);
    request.power = 701;
    EXPECT_ERROR(named_gpu(request), UserError, "--power 701", "h100 has at most 700 W");
}

TEST(Machine, AttentionHasTheSpeedOfItsKernel) {
    const auto seconds = [](const char* gpu, const char* program, bool by_flash) {
        const Machine machine = named_gpu(config::PlanRequest{.device = gpu, .program = program});
        return machine.seconds({.kind = ops::WorkKind::Attention,
                                .type = at::kBFloat16,
                                .flops = 1e12,
                                .by_flash = by_flash}) -
               machine.launch_seconds;
    };
    EXPECT_DOUBLE_EQ(seconds("h100", "argosy", true), 2 * seconds("h100", "argosy", false));
    EXPECT_DOUBLE_EQ(seconds("a100", "argosy", true), seconds("a100", "argosy", false));
    EXPECT_DOUBLE_EQ(seconds("h100", "torchtitan", true), seconds("h100", "torchtitan", false));
}

TEST(Machine, AnA100With40GbHasItsOwnSpeed) {
    EXPECT_EQ(named_gpu("a100").memory_speed, 2039e9);
    EXPECT_EQ(named_gpu("a100:40").memory_speed, 1555e9);
    EXPECT_EQ(named_gpu("a100-40gb").memory_bytes, named_gpu("a100:40").memory_bytes);
    EXPECT_EQ(std::ranges::count(gpu_names(), "a100"), 1);
}

TEST(Machine, OfThisProcessorIsMeasured) {
    const std::vector<ops::Work> work = {
        {ops::WorkKind::Product, at::kFloat, 2.0 * 64 * 32 * 16, 0, 64, 32, 16},
        {ops::WorkKind::Attention, at::kFloat, 1e5, 0, 64, 32, 16},
        {ops::WorkKind::Pass, at::kFloat, 0, 1e6}};
    const Machine machine = measure_processor(work, at::kFloat, 2);
    EXPECT_GT(machine.peak(at::kFloat), 1e8);
    EXPECT_GT(machine.memory_speed, 1e7);
    EXPECT_EQ(machine.measured_flops.size(), 2);
    for (const auto& [size, flops] : machine.measured_flops) EXPECT_GT(flops, 1e6);
}

}  // namespace
}  // namespace argosy::plan
