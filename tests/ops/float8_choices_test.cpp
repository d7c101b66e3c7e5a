// Which products a kind of GPU computes in float8, and what a plan sees of them. No GPU is needed.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ops/gpu_float8.h"
#include "ops/matmul.h"
#include "ops/ops_context.h"
#include "ops/planned_gpu.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

TEST(Float8Choices, SayWhyAProductIsEmulated) {
    const auto way = [](const char* name, int capability, int64_t terms = 64) {
        return choose_float8(find_recipe(name)->forward, at::kBFloat16, 32, terms, {capability, 130000});
    };
    EXPECT_EQ(way("tensorwise", 90).way, Float8Way::Native);
    EXPECT_EQ(way("rowwise", 90).way, Float8Way::Native);
    EXPECT_EQ(way("rowwise", 100).way, Float8Way::ScaledAfter);
    EXPECT_EQ(way("mxfp8_cublas", 100).way, Float8Way::Native);
    EXPECT_EQ(way("mxfp8_cublas", 90).way, Float8Way::Emulated);
    EXPECT_NE(way("mxfp8_cublas", 90).reason.find("blocks"), std::string::npos);
    EXPECT_EQ(way("blockwise", 90).way, Float8Way::Native);
    EXPECT_EQ(way("blockwise", 100).way, Float8Way::Native);
    EXPECT_EQ(way("blockwise", 89).way, Float8Way::Emulated);
    EXPECT_EQ(way("tensorwise", 90, 72).way, Float8Way::Emulated);
    EXPECT_EQ(way("tensorwise", 80).way, Float8Way::Emulated);
}

// What a plan sees: the types of products, and the bytes of the passes around them.
TEST(Float8Choices, APlannedGpuReportsItsWork) {
    const OpsContext context;
    const auto work_on = [](int capability, const char* name, int64_t unit) {
        const PlannedGpu gpu(capability);
        std::map<std::string, double> seen;  // flops of products by type, and bytes of passes
        const WorkObserver observer([&](const Work& work) {
            work.kind == WorkKind::Product ? seen[toString(work.type)] += work.flops
                                           : seen["passes"] += work.bytes;
        });
        const auto options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
        const at::Tensor x = at::zeros({2 * unit, 3 * unit}, options),
                         weight = at::zeros({unit, 3 * unit}, options);
        const Recipe& recipe = *find_recipe(name);
        const bool blocks = recipe.has_blocks();
        linear(cast(x, recipe.forward.left, SumOver::Columns, blocks ? at::Tensor() : largest_magnitude(x)),
               Stack::of(weight, recipe)
                   .cast(recipe.forward.right, SumOver::Columns,
                         blocks ? at::Tensor() : largest_magnitude(weight)));
        return seen;
    };
    const double elements = 64 * 96 + 32 * 96, flops = 2.0 * 64 * 96 * 32;
    const auto native = work_on(90, "tensorwise", 32), emulated = work_on(80, "tensorwise", 32);
    EXPECT_EQ(native, (std::map<std::string, double>{{"Float8_e4m3fn", flops}, {"passes", elements * 5}}));
    const auto blocks = work_on(90, "blockwise", 128);
    const double of_blocks = 128 * 128 * (2 * 3 + 3);
    EXPECT_EQ(blocks,
              (std::map<std::string, double>{{"Float8_e4m3fn", flops * 64},
                                             {"passes", of_blocks * 3 + 3 * 256 + 3}}));  // and the scales
    EXPECT_EQ(work_on(100, "blockwise", 128), blocks);
    EXPECT_EQ(emulated.at("BFloat16"), flops);
    const double scaling = 64 * 32 * (8 + 6);  // the scales of an fp32 sum, and the rounding to bf16
    EXPECT_EQ(emulated.at("passes"), elements * 8 + scaling);
}

// A weight that was gathered in float8 lies by rows; the pieces of async tensor parallelism share its copy.
TEST(Float8Choices, PiecesOfAnInputGradientShareTheTransposedWeight) {
    const OpsContext context;
    const auto transposed_bytes = [](int num_pieces) {
        const PlannedGpu gpu(90);
        double passes = 0;
        const WorkObserver observer([&](const Work& work) {
            if (work.kind == WorkKind::Pass) passes += work.bytes;
        });
        const auto options = at::TensorOptions(at::kMeta);
        const Recipe& recipe = *find_recipe("tensorwise");
        const Operand weight{at::zeros({256, 512}, options.dtype(at::ScalarType::Float8_e4m3fn)),
                             at::zeros({1, 1}, options), at::kBFloat16},
            dy{at::zeros({32, 256}, options.dtype(at::ScalarType::Float8_e4m3fn)), at::zeros({1, 1}, options),
               at::kBFloat16};
        const Stack cast = Stack{{}, weight, &recipe}.cast(recipe.input_gradient.right, SumOver::Rows);
        for (int piece = 0; piece < num_pieces; ++piece) linear_input_gradient(dy, cast);
        return passes;
    };
    EXPECT_EQ(transposed_bytes(1), 2 * 256 * 512);
    EXPECT_EQ(transposed_bytes(4), 2 * 256 * 512);
}

}  // namespace
}  // namespace argosy::ops
