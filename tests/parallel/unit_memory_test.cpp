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

constexpr int kQkv = 1, kGateUp = 5, kQkvBias = 8;  // the first parameters of the joins

std::vector<UnitLayout::Parameter> parameters(int64_t v_rows = 20) {
    const model::Place qkv{kQkv, 3}, gate_up{kGateUp, 2}, qkv_bias{kQkvBias, 3};
    return {{{0, 1}, {9}},     {qkv, {40, 9}},     {qkv, {20, 9}},      {qkv, {v_rows, 9}},
            {{4, 1}, {9, 40}}, {gate_up, {53, 9}}, {gate_up, {53, 9}},  {{7, 1}, {9, 53}},
            {qkv_bias, {40}},  {qkv_bias, {20}},   {qkv_bias, {v_rows}}};
}

/// Checks that a join is the view of the rows of its parameters, one after the other, in the buffer.
void expect_joins(const std::vector<UnitLayout::Parameter>& unit, int num_shards,
                  const std::set<int>& expected) {
    SCOPED_TRACE(num_shards);
    const UnitLayout layout(unit, num_shards);
    const at::Tensor buffer = at::arange(layout.num_elements());
    const model::Joined joined = layout.joined(buffer);
    for (const int join : {kQkv, kQkvBias, kGateUp}) {
        EXPECT_EQ(joined.contains(join), expected.contains(join)) << join;
        if (!joined.contains(join)) continue;
        std::vector<at::Tensor> parts;
        for (size_t i = 0; i < unit.size(); ++i) {
            if (unit[i].place.first != join) continue;
            parts.push_back(layout.padded(buffer, i).narrow(0, 0, unit[i].shape[0]));
        }
        EXPECT_TRUE(identical(joined.at(join), at::cat(parts)));
        EXPECT_EQ(joined.at(join).storage().data(), buffer.storage().data());
    }
}

TEST(UnitLayout, JoinsParametersWithoutPaddingBetween) {
    expect_joins(parameters(), 1, {kQkv, kQkvBias, kGateUp});
    expect_joins(parameters(), 2, {kQkv, kQkvBias});
    expect_joins(parameters(), 20, {kQkv, kQkvBias});
    expect_joins(parameters(), 3, {});
    expect_joins(parameters(), 40, {});
    expect_joins(parameters(/*v_rows=*/21), 2, {kQkv, kQkvBias});  // padding after the last is in no way
}

TEST(UnitLayout, NeedsAllOfAJoinTogether) {
    std::vector<UnitLayout::Parameter> unit = parameters();
    std::swap(unit[3], unit[4]);
    expect_joins(unit, 1, {kQkvBias, kGateUp});
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
            const bool follows =
                i > 0 && unit[i - 1].place == unit[i].place && unit[i - 1].shape[0] % num_shards == 0;
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
