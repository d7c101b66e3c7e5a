#include "preflight/speed.h"

#include <gtest/gtest.h>

#include "bench/collective.h"

namespace argosy::preflight {
namespace {

using comm::OpKind;
using layout::Axis;
using Groups = std::vector<std::vector<int>>;

constexpr size_t kPlenty = size_t{1} << 40;

TEST(StepOperations, AreTheHeaviestOfEachCollectiveOverEachAxis) {
    const layout::MeshShape mesh{{1, 2, 2, 1, 1}};
    const std::vector<parallel::Traffic> traffic = {
        {layout::kShardAxes, 1, OpKind::AllGather, at::kBFloat16, 5000, 1},  // the embedding, once
        {layout::kShardAxes, 1, OpKind::AllGather, at::kBFloat16, 2000, 8},  // eight blocks carry more
        {layout::kShardAxes, 1, OpKind::ReduceScatter, at::kFloat, 2000, 8},
        {Axis::Replicate, 1, OpKind::AllReduce, at::kFloat, 10001, 1},
    };
    const auto operations = step_operations(traffic, mesh, kPlenty);
    ASSERT_EQ(operations.size(), 3);
    EXPECT_STREQ(operations[0].kind.collective->name, "all_gather");
    EXPECT_EQ(operations[0].axes, "dp_shard");
    EXPECT_EQ(operations[0].groups, (Groups{{0, 1}, {2, 3}}));
    EXPECT_EQ(operations[0].kind.bytes, 4000);
    EXPECT_EQ(operations[0].kind.reduction, bench::Reduction::None);
    EXPECT_EQ(operations[1].kind.bytes, 8000);
    EXPECT_EQ(operations[1].kind.reduction, bench::Reduction::Sum);
    EXPECT_EQ(operations[2].groups, (Groups{{0, 2}, {1, 3}}));
    EXPECT_EQ(operations[2].kind.bytes, 40004);
}

TEST(StepOperations, AreMeasuredUpToALimit) {
    const layout::MeshShape mesh{{1, 1, 4, 1, 1}};
    const std::vector<parallel::Traffic> traffic = {
        {layout::kShardAxes, 1, OpKind::AllGather, at::kFloat, 1 << 20, 1}};
    const auto operations = step_operations(traffic, mesh, 1 << 16);
    ASSERT_EQ(operations.size(), 1);
    EXPECT_EQ(operations[0].kind.bytes, 1 << 16);
    EXPECT_EQ(operations[0].launch_bytes, 4 << 20);
}

TEST(StepOperations, KeepRanksThatHoldTheSameKeyHeadsTogether) {
    const layout::MeshShape mesh{{1, 1, 1, 1, 4}};
    const std::vector<parallel::Traffic> traffic = {{Axis::Tensor, 2, OpKind::AllReduce, at::kFloat, 100, 1},
                                                    {Axis::Tensor, 1, OpKind::AllReduce, at::kFloat, 300, 1},
                                                    {Axis::Pipeline, 1, OpKind::Send, at::kHalf, 100, 1}};
    const auto operations = step_operations(std::span(traffic).first(2), mesh, kPlenty);
    ASSERT_EQ(operations.size(), 2);
    EXPECT_EQ(operations[0].groups, (Groups{{0, 1}, {2, 3}}));
    EXPECT_EQ(operations[1].groups, (Groups{{0, 1, 2, 3}}));
    const auto send = step_operations(std::span(traffic).subspan(2), {{4, 1, 1, 1, 1}}, kPlenty);
    EXPECT_STREQ(send[0].kind.collective->name, "sendrecv");
}

}  // namespace
}  // namespace argosy::preflight
