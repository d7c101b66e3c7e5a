#include "eval/weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "eval/memory_source.h"
#include "expect_error.h"
#include "support/reference.h"
#include "support/tensors.h"

namespace argosy::eval {
namespace {

using testing::identical;

/// A tensor larger than one conversion step is converted in several parts; the last part is shorter.
TEST(Weights, RowsAreConvertedInParts) {
    constexpr int64_t kRows = 70001, kColumns = 128;
    testing::MemorySource source(testing::Reference("qwen3").spec(), 1);
    const layout::ParamSpec table{.name = "tok_embeddings.weight", .shape = {kRows, kColumns}};
    const at::Tensor values = (at::arange(kRows * kColumns) % 997).view({kRows, kColumns});
    source.set("model/" + table.name, values.to(at::kHalf));
    for (const auto type : {at::kFloat, at::kHalf}) {
        EXPECT_TRUE(identical(read_rows(source, table, {0, kRows}, type), values.to(type)));
        EXPECT_TRUE(
            identical(read_rows(source, table, {3, 69000}, type), values.narrow(0, 3, 69000).to(type)));
        EXPECT_TRUE(
            identical(read_rows(source, table, {70000, 1}, type), values.narrow(0, 70000, 1).to(type)));
    }
}

TEST(Weights, AreOnTheRequestedDevice) {
    const model::ModelSpec spec = testing::Reference("qwen3").spec();
    const testing::MemorySource source(spec, 1);
    const auto on_meta = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
    const std::vector<model::Parameter> head = model::unit_parameters(spec).back();
    const model::Weights weights = read_weights(source, head, on_meta);
    for (const auto& [role, parameter] : head) {
        EXPECT_TRUE(weights[role].is_meta()) << parameter.name;
        EXPECT_EQ(weights[role].scalar_type(), at::kBFloat16);
        EXPECT_TRUE(read_rows(source, parameter, {0, 1}, on_meta).is_meta()) << parameter.name;
    }
}

TEST(ComputeType, IsOneOfThree) {
    EXPECT_EQ(compute_type("fp32"), at::kFloat);
    EXPECT_EQ(compute_type("bf16"), at::kBFloat16);
    EXPECT_EQ(compute_type("fp16"), at::kHalf);
    EXPECT_ERROR(compute_type("float32"), UserError, "'float32'", "fp32, bf16 or fp16");
}

}  // namespace
}  // namespace argosy::eval
