// The layout of a unit's parameters in a buffer, and the joins that are one matrix.
#include "parallel/unit_memory.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <set>

#include "support/tensors.h"

namespace argosy::parallel {
namespace {

using ::argosy::testing::identical;
using model::Join;
using model::Role;

std::vector<UnitLayout::Parameter> parameters(int64_t v_rows = 20) {
    return {{Role::AttentionNorm, {9}}, {Role::Wq, {40, 9}},    {Role::Wk, {20, 9}},
            {Role::Wv, {v_rows, 9}},    {Role::Wo, {9, 40}},    {Role::Gate, {53, 9}},
            {Role::Up, {53, 9}},        {Role::Down, {9, 53}},  {Role::BiasQ, {40}},
            {Role::BiasK, {20}},        {Role::BiasV, {v_rows}}};
}

/// Checks that a join is the view of the rows of its parameters, one after the other, in the buffer.
void expect_joins(const std::vector<UnitLayout::Parameter>& unit, int num_shards,
                  const std::set<Join>& expected) {
    SCOPED_TRACE(num_shards);
    const UnitLayout layout(unit, num_shards);
    const at::Tensor buffer = at::arange(layout.num_elements());
    const model::Joined joined = layout.joined(buffer);
    for (const Join join : {Join::Qkv, Join::QkvBias, Join::GateUp}) {
        EXPECT_EQ(joined[join].defined(), expected.contains(join)) << static_cast<int>(join);
        if (!joined[join].defined()) continue;
        std::vector<at::Tensor> parts;
        for (size_t i = 0; i < unit.size(); ++i) {
            if (model::join_of(unit[i].role) != join) continue;
            parts.push_back(layout.padded(buffer, i).narrow(0, 0, unit[i].shape[0]));
        }
        EXPECT_TRUE(identical(joined[join], at::cat(parts)));
        EXPECT_EQ(joined[join].storage().data(), buffer.storage().data());
    }
}

TEST(UnitLayout, JoinsParametersWithoutPaddingBetween) {
    expect_joins(parameters(), 1, {Join::Qkv, Join::QkvBias, Join::GateUp});
    expect_joins(parameters(), 2, {Join::Qkv, Join::QkvBias});
    expect_joins(parameters(), 20, {Join::Qkv, Join::QkvBias});
    expect_joins(parameters(), 3, {});
    expect_joins(parameters(), 40, {});
    expect_joins(parameters(/*v_rows=*/21), 2,
                 {Join::Qkv, Join::QkvBias});  // padding after the last is in no way
}

TEST(UnitLayout, NeedsAllOfAJoinTogether) {
    std::vector<UnitLayout::Parameter> unit = parameters();
    std::swap(unit[3], unit[4]);
    expect_joins(unit, 1, {Join::QkvBias, Join::GateUp});
}

TEST(UnitLayout, SlicesDoNotOverlapAndBeginAligned) {
    for (const int num_shards : {1, 2, 3, 40}) {
        const auto unit = parameters();
        const UnitLayout layout(unit, num_shards);
        const at::Tensor buffer = at::arange(layout.num_elements());
        int64_t end = 0;
        for (size_t i = 0; i < unit.size(); ++i) {
            const at::Tensor slice = layout.padded(buffer, i);
            const int64_t begin = slice.flatten()[0].item<int64_t>();
            EXPECT_GE(begin, end);
            const auto join = model::join_of(unit[i].role);
            const bool follows = i > 0 && join && model::join_of(unit[i - 1].role) == join &&
                                 unit[i - 1].shape[0] % num_shards == 0;
            EXPECT_TRUE(follows || begin % 128 == 0) << begin;
            EXPECT_EQ(slice.size(0) % num_shards, 0);
            EXPECT_LT(slice.size(0) - unit[i].shape[0], num_shards);
            end = begin + slice.numel();
        }
        EXPECT_LE(end, layout.num_elements());
    }
}

}  // namespace
}  // namespace argosy::parallel
