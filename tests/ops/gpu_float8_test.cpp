// Casts and products of float8 on a GPU, by each recipe and on each kind of GPU: the casts have the
// processor's bits, and products are sums in fp64 of the numbers that the operands stand for. Over the
// emulated kernels and the stand-in for cuBLASLt.
#include "ops/gpu_float8.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/float8_products.h"
#include "ops/matmul.h"
#include "ops/ops_test.h"
#include "ops/work.h"
#include "support/fake_cublaslt.h"
#include "support/fake_gpus.h"

namespace argosy::ops {
namespace {

using ::argosy::testing::fake_cublaslt;
using ::argosy::testing::fake_gpus;

/// The compute capability of the GPU, and the type of the matrices that are cast.
struct Device {
    int capability;
    at::ScalarType type;
};

class GpuFloat8 : public ::testing::TestWithParam<Device> {
  protected:
    GpuFloat8() {
        fake_cublaslt() = {};
        fake_gpus().capability = GetParam().capability;
    }
    ~GpuFloat8() override { fake_gpus().capability = 90; }

    at::Tensor uneven(int64_t rows, int64_t columns) {
        const auto normal = [&](int64_t m, int64_t n) { return random_.normal({m, n}, at::kDouble, 1); };
        const at::Tensor sizes = (normal(rows, 1) + normal(1, columns)).exp();
        return (normal(rows, columns) * sizes).to(GetParam().type);
    }
    static Operand of(const at::Tensor& x, const Cast& how, SumOver summed) {
        return cast(x, how, summed, how.scaling == Scaling::Matrix ? largest_magnitude(x) : at::Tensor());
    }
    /// Calls `compute` and counts the products that cuBLASLt computed in float8.
    template <class Compute>
    static int float8_products(const Compute& compute) {
        gpu::synchronize();
        const int before = fake_cublaslt().num_float8;
        compute();
        gpu::synchronize();
        return fake_cublaslt().num_float8 - before;
    }
    bool is_native(const char* name) const {
        const int capability = GetParam().capability;
        return capability >= 89 &&
               (!find_recipe(name)->has_blocks() || capability >= 100 || has_long_blocks(name));
    }
    /// Whether its products have fp32 scales of blocks of 128.
    static bool has_long_blocks(const std::string& name) {
        return name == "blockwise" && GetParam().capability == 90;
    }

    /// Whether products of float8 read one order of their operands only.
    static bool has_two_orders() {
        const int capability = GetParam().capability;
        return capability >= 89 && (capability < 100 || capability >= 120);
    }

    OpsContext context_;
    ::argosy::testing::RandomTensors random_{1};
};

TEST_P(GpuFloat8, CastsHaveTheProcessorsBits) {
    for (const char* name : {"tensorwise", "rowwise", "blockwise", "mxfp8_cublas_rceil"}) {
        const Recipe& recipe = *find_recipe(name);
        const int64_t unit = recipe.forward.left.block_size;
        const at::Tensor x = uneven(2 * unit, 3 * unit);
        for (const Cast& how : {recipe.forward.left, recipe.forward.right, recipe.input_gradient.left}) {
            for (const SumOver summed : {SumOver::Rows, SumOver::Columns}) {
                const Operand found = of(x, how, summed);
                const at::Tensor on_processor = x.clone();
                fake_gpus().host_tensors.insert(on_processor.const_data_ptr());
                const Operand right = of(on_processor, how, summed);
                EXPECT_TRUE(found.values.view(at::kByte).equal(right.values.view(at::kByte))) << name;
                EXPECT_TRUE(found.scale.view(at::kByte).equal(right.scale.view(at::kByte))) << name;
                EXPECT_EQ(found.values.stride(summed == SumOver::Rows ? 0 : 1), 1)
                    << "the terms of a sum are not adjacent";
                fake_gpus().host_tensors.erase(on_processor.const_data_ptr());
            }
        }
    }
}

// The scales of blocks whose largest magnitude is any number, also infinity and NaN.
TEST_P(GpuFloat8, ScalesOfBlocksHaveTheProcessorsBits) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::vector<float> largest = {0, kInfinity, std::nanf("")};
    for (int exponent = -149; exponent < 128; ++exponent) {
        for (const float size : {1.0F, 1.37F, 448.0F}) {
            const float x = std::ldexp(size, exponent);
            for (const float each : {std::nextafter(x, 0.0F), x, std::nextafter(x, kInfinity)})
                largest.push_back(each);
        }
    }
    const auto count = static_cast<int64_t>(largest.size());
    const at::Tensor column = at::zeros_like(uneven(count, 1));
    for (int64_t i = 0; i < count; ++i) column[i][0] = largest[i];
    const at::Tensor x =
        column * at::linspace(-1, 1, 128, column.options().dtype(at::kFloat)).to(column.dtype());
    const at::Tensor on_processor = x.clone();
    for (const char* name : {"blockwise", "mxfp8_cublas", "mxfp8_cublas_rceil"}) {
        const Cast& how = find_recipe(name)->forward.left;
        const Operand found = of(x, how, SumOver::Columns);
        fake_gpus().host_tensors.insert(on_processor.const_data_ptr());
        const Operand right = of(on_processor, how, SumOver::Columns);
        fake_gpus().host_tensors.erase(on_processor.const_data_ptr());
        EXPECT_TRUE(found.scale.view(at::kByte).equal(right.scale.view(at::kByte))) << name;
        const auto numbers = [](const Operand& each) { return each.values.to(at::kFloat).nan_to_num(1e9); };
        EXPECT_TRUE(numbers(found).equal(numbers(right))) << name;
    }
}

TEST_P(GpuFloat8, CastsIntoMemoryThatIsKept) {
    const at::Tensor x = uneven(64, 96);
    const Cast& how = find_recipe("tensorwise")->forward.right;
    const Operand expected = of(x, how, SumOver::Columns);
    const Operand kept{at::zeros_like(expected.values), at::zeros_like(expected.scale), x.scalar_type()};
    double bytes = 0;
    const at::Tensor largest = largest_magnitude(x);
    const WorkObserver observer([&](const Work& work) { bytes += work.bytes; });
    cast_into(kept, x, how, largest);
    EXPECT_EQ(bytes, x.nbytes() + x.numel());
    EXPECT_TRUE(kept.values.view(at::kByte).equal(expected.values.view(at::kByte)));
    EXPECT_TRUE(kept.scale.equal(expected.scale));
}

TEST_P(GpuFloat8, ARecipeMayEmulateAllProducts) {
    const Recipe& recipe = *find_recipe("tensorwise", Accumulation::Float32);
    const at::Tensor x = uneven(64, 96), weight = uneven(32, 96), dy = uneven(64, 32);
    const auto stack = [&](const Cast& how, SumOver summed) {
        return Stack::of(weight, recipe).cast(how, summed, largest_magnitude(weight));
    };
    at::Tensor y, dx, dw = at::zeros(weight.sizes(), weight.options());
    EXPECT_EQ(float8_products([&] {
                  y = linear(of(x, recipe.forward.left, SumOver::Columns),
                             stack(recipe.forward.right, SumOver::Columns));
                  dx = linear_input_gradient(of(dy, recipe.input_gradient.left, SumOver::Columns),
                                             stack(recipe.input_gradient.right, SumOver::Rows));
                  linear_weight_gradient(dw, of(dy, recipe.weight_gradient.left, SumOver::Rows),
                                         of(x, recipe.weight_gradient.right, SumOver::Rows),
                                         /*accumulate=*/false, recipe.accumulation);
              }),
              0);
    expect_product(y, values_of(of(x, recipe.forward.left, SumOver::Columns)),
                   values_of(stack(recipe.forward.right, SumOver::Columns).all).t());
}

TEST_P(GpuFloat8, AllThreeProductsOfALayer) {
    for (const char* name : kRecipeNames) {
        SCOPED_TRACE(name);
        const Recipe& recipe = *find_recipe(name);
        const int one = is_native(name) ? 1 : 0;
        const int64_t unit = recipe.forward.left.block_size;
        const at::Tensor x = uneven(2 * unit, 3 * unit), weight = uneven(unit, 3 * unit),
                         dy = uneven(2 * unit, unit), addend = uneven(2 * unit, unit),
                         bias = uneven(1, unit).view({unit});
        const auto stack = [&](const Cast& how, SumOver summed) {
            return Stack::of(weight, recipe).cast(how, summed, largest_magnitude(weight));
        };
        {
            const Operand left = of(x, recipe.forward.left, SumOver::Columns);
            const Stack right = stack(recipe.forward.right, SumOver::Columns);
            const at::Tensor a = values_of(left), b = values_of(right.all).t();
            at::Tensor y, sum, part, with_bias;
            EXPECT_EQ(float8_products([&] {
                          y = linear(left, right);
                          sum = add_linear(addend, left, right);
                          part = linear(left.narrow(0, 2, 32), right);
                          with_bias = linear(left, right,
                                             Stack{{bias.narrow(0, 0, 20), bias.narrow(0, 20, unit - 20)}});
                      }),
                      4 * one);
            EXPECT_EQ(fake_cublaslt().num_fast, has_long_blocks(name) ? 0 : 4 * one) << "sums of y are fast";
            expect_product(y, a, b);
            expect_product(sum, a, b, addend);
            expect_product(part, a.narrow(0, 2, 32), b);
            expect_product(with_bias, a, b, bias.expand({2 * unit, unit}));
        }
        fake_cublaslt().num_fast = 0;
        {
            const Operand left = of(dy, recipe.input_gradient.left, SumOver::Columns);
            const Stack right = stack(recipe.input_gradient.right, SumOver::Rows);
            at::Tensor dx;
            EXPECT_EQ(float8_products([&] { dx = linear_input_gradient(left, right); }), one);
            expect_product(dx, values_of(left), values_of(right.all));
        }
        if (recipe.weight_gradient.left.scaling == Scaling::None) continue;
        const Operand left = of(dy, recipe.weight_gradient.left, SumOver::Rows),
                      right = of(x, recipe.weight_gradient.right, SumOver::Rows);
        for (const bool accumulate : {false, true}) {
            at::Tensor sum = uneven(unit, 3 * unit).to(at::kFloat);
            const at::Tensor before = sum.clone();
            EXPECT_EQ(float8_products([&] { linear_weight_gradient(sum, left, right, accumulate); }), one);
            expect_product(sum, values_of(left).t(), values_of(right), accumulate ? before : at::Tensor());
        }
        EXPECT_EQ(fake_cublaslt().num_fast, 0) << "sums of gradients are promoted";
    }
}

// Scales of blocks are exact: 2^-127 of a block of zeros, which is subnormal in fp32, and NaN.
TEST_P(GpuFloat8, BlocksOfTinyNumbersAndNaNAreExact) {
    const Recipe& recipe = *find_recipe("blockwise");
    const at::Tensor x = uneven(128, 5 * 128), weight = uneven(256, 5 * 128);
    x.narrow(0, 3, 1).narrow(1, 128, 128).zero_();
    x.narrow(0, 4, 1).mul_(0x1p-100);
    x.narrow(0, 5, 1).narrow(1, 200, 1).fill_(std::nan(""));
    weight.narrow(1, 128, 128).mul_(0x1p+100);
    weight.narrow(0, 0, 128).narrow(1, 256, 128).zero_();
    const Operand left = of(x, recipe.forward.left, SumOver::Columns);
    EXPECT_EQ(left.scale.view(at::kByte).min().item<int>(), 0);
    // An emulated product rounds the values of such a row.
    if (is_native("blockwise")) left.scale.view(at::kByte).narrow(0, 6, 1).zero_();
    const Stack right = Stack::of(weight, recipe).cast(recipe.forward.right, SumOver::Columns);
    at::Tensor y;
    EXPECT_EQ(float8_products([&] { y = linear(left, right); }), is_native("blockwise") ? 1 : 0);
    EXPECT_TRUE(y.narrow(0, 5, 1).isnan().all().item<bool>());
    const at::Tensor a = values_of(left), b = values_of(right.all).t();
    for (const auto& [begin, count] : {std::pair<int, int>{0, 5}, {6, 122}})
        expect_product(y.narrow(0, begin, count), a.narrow(0, begin, count), b);
}

// Hopper's products with scales of blocks want multiples of 8 rows: the tokens of an evaluation are any
// number.
TEST_P(GpuFloat8, OtherNumbersOfRowsAreEmulatedWithLongBlocks) {
    const Recipe& recipe = *find_recipe("blockwise");
    const Stack right = Stack::of(uneven(128, 256), recipe).cast(recipe.forward.right, SumOver::Columns);
    for (const int num_rows : {8, 20, 1}) {
        const Operand left = of(uneven(num_rows, 256), recipe.forward.left, SumOver::Columns);
        const bool native = is_native("blockwise") && (!has_long_blocks("blockwise") || num_rows == 8);
        at::Tensor y;
        EXPECT_EQ(float8_products([&] { y = linear(left, right); }), native ? 1 : 0) << num_rows;
        expect_product(y, values_of(left), values_of(right.all).t());
    }
}

// A cast that serves both products of dy has one order in memory; the other product transposes its bytes,
// unless the GPU reads either order.
TEST_P(GpuFloat8, ASharedCastServesBothProducts) {
    const Recipe& recipe = *find_recipe("tensorwise");
    const at::Tensor x = uneven(64, 96), dy = uneven(64, 32);
    const Operand left = of(dy, recipe.input_gradient.left, SumOver::Columns),
                  right = of(x, recipe.forward.left, SumOver::Columns);
    at::Tensor sum = at::zeros_like(uneven(32, 96).to(at::kFloat));
    double bytes = 0;
    const WorkObserver observer(
        [&](const Work& work) { bytes += work.kind == WorkKind::Pass ? work.bytes : 0; });
    EXPECT_EQ(float8_products([&] { linear_weight_gradient(sum, left, right, /*accumulate=*/false); }),
              is_native("tensorwise") ? 1 : 0);
    if (is_native("tensorwise")) {
        EXPECT_EQ(bytes, has_two_orders() ? 2 * 64 * (96 + 32) : 0);
    }
    expect_product(sum, values_of(left).t(), values_of(right));
}

// cuBLASLt may lack an algorithm for an operand in its other order, although it reads either.
TEST_P(GpuFloat8, AnOrderWithoutAlgorithmIsTransposed) {
    fake_cublaslt().lacks_other_orders = true;
    const Recipe& recipe = *find_recipe("tensorwise");
    const at::Tensor x = uneven(64, 96), dy = uneven(64, 32), weight = uneven(32, 96);
    const Operand dy_cast = of(dy, recipe.input_gradient.left, SumOver::Columns),
                  x_cast = of(x, recipe.forward.left, SumOver::Columns);
    const Stack weight_cast =
        Stack::of(weight, recipe).cast(recipe.forward.right, SumOver::Columns, largest_magnitude(weight));
    const int one = is_native("tensorwise") ? 1 : 0;
    for (int i = 0; i < 2; ++i) {
        at::Tensor sum = at::zeros_like(uneven(32, 96).to(at::kFloat)), dx;
        EXPECT_EQ(float8_products([&] { linear_weight_gradient(sum, dy_cast, x_cast, false); }), one);
        expect_product(sum, values_of(dy_cast).t(), values_of(x_cast));
        EXPECT_EQ(float8_products([&] { dx = linear_input_gradient(dy_cast, weight_cast); }), one);
        expect_product(dx, values_of(dy_cast), values_of(weight_cast.all));
    }
}

// Where products of float8 read one order, a cast for products over either dim is stored in both orders.
TEST_P(GpuFloat8, ACastForEitherDimIsStoredInBothOrders) {
    const Recipe& recipe = *find_recipe("tensorwise");
    const at::Tensor x = uneven(64, 96), dy = uneven(64, 32), weight = uneven(32, 96);
    const Operand expected = of(x, recipe.forward.left, SumOver::Columns);
    Operand both = of(x, recipe.forward.left, SumOver::Either);
    ASSERT_EQ(both.other_order.defined(), has_two_orders());
    EXPECT_TRUE(both.values.view(at::kByte).equal(expected.values.view(at::kByte)));
    const Stack right =
        Stack::of(weight, recipe).cast(recipe.forward.right, SumOver::Columns, largest_magnitude(weight));
    EXPECT_TRUE(linear(both, right).equal(linear(expected, right)));

    const Operand left = of(dy, recipe.input_gradient.left, SumOver::Either);
    at::Tensor sum = at::zeros_like(uneven(32, 96).to(at::kFloat)), sum_of_kept = sum.clone(),
               part = sum.narrow(0, 0, 16).clone();
    linear_weight_gradient(sum, left, both, /*accumulate=*/false);
    expect_product(sum, values_of(left).t(), values_of(expected));
    linear_weight_gradient(part, left.narrow(1, 0, 16), both, /*accumulate=*/false);
    EXPECT_TRUE(part.equal(sum.narrow(0, 0, 16)));
    both.keep_for_sums_over_rows();
    EXPECT_EQ(both.values.stride(0), has_two_orders() ? 1 : 96);
    EXPECT_TRUE(both.values.view(at::kByte).equal(expected.values.view(at::kByte)));
    linear_weight_gradient(sum_of_kept, left, both, /*accumulate=*/false);
    EXPECT_TRUE(sum_of_kept.equal(sum));
}

TEST_P(GpuFloat8, NormsAndActivationsFindTheirLargestMagnitude) {
    const at::Tensor x = uneven(64, 96), weight = uneven(1, 96).view({96}), gate_up = uneven(64, 64),
                     dy = uneven(64, 32);
    at::Tensor of_norm, of_activation, of_gradient;
    const at::Tensor normed = rms_norm(x, {weight, 1e-5}, &of_norm).y,
                     activation = glu(gate_up, Activation::Silu, &of_activation),
                     gradient = glu_backward(dy, gate_up, Activation::Silu, &of_gradient);
    EXPECT_TRUE(of_norm.equal(largest_magnitude(normed)));
    EXPECT_TRUE(of_activation.equal(largest_magnitude(activation)));
    EXPECT_TRUE(of_gradient.equal(largest_magnitude(gradient)));
    gpu::synchronize();

    const at::Tensor on_processor = gate_up.clone();
    fake_gpus().host_tensors.insert(on_processor.const_data_ptr());
    at::Tensor unknown;
    EXPECT_TRUE(glu(on_processor, Activation::Silu, &unknown).defined());
    EXPECT_FALSE(unknown.defined());
    fake_gpus().host_tensors.erase(on_processor.const_data_ptr());
}

// 20 tokens are no multiple of 16 terms, and a part of a buffer may begin anywhere.
TEST_P(GpuFloat8, OtherSizesAndPlacesAreComputedToo) {
    const Recipe& recipe = *find_recipe("tensorwise");
    const at::Tensor x = uneven(20, 96), dy = uneven(20, 32);
    const Operand left = of(dy, recipe.weight_gradient.left, SumOver::Rows),
                  right = of(x, recipe.weight_gradient.right, SumOver::Rows);
    at::Tensor sum = at::zeros_like(uneven(32, 96).to(at::kFloat));
    EXPECT_EQ(float8_products([&] { linear_weight_gradient(sum, left, right, /*accumulate=*/false); }), 0);
    expect_product(sum, values_of(left).t(), values_of(right));

    const at::Tensor more = uneven(32, 96), even = uneven(32, 32);
    const Operand dy_cast = of(even, recipe.weight_gradient.left, SumOver::Rows),
                  x_cast = of(more, recipe.weight_gradient.right, SumOver::Rows);
    at::Tensor shifted = uneven(1, 32 * 96 + 1).to(at::kFloat).flatten().narrow(0, 1, 32 * 96).view({32, 96});
    const at::Tensor before = shifted.clone();
    EXPECT_EQ(float8_products([&] { linear_weight_gradient(shifted, dy_cast, x_cast, /*accumulate=*/true); }),
              is_native("tensorwise") ? 1 : 0);
    expect_product(shifted, values_of(dy_cast).t(), values_of(x_cast), before);

    const Operand left_cast = of(more, recipe.forward.left, SumOver::Columns);
    const at::Tensor weight = uneven(16, 96);
    const Stack right_cast =
        Stack::of(weight, recipe).cast(recipe.forward.right, SumOver::Columns, largest_magnitude(weight));
    Operand moved = left_cast;
    moved.values = at::empty({32 * 96 + 1}, moved.values.options()).narrow(0, 1, 32 * 96).view({32, 96});
    moved.values.copy_(left_cast.values);
    at::Tensor y, y_of_one;
    EXPECT_EQ(float8_products([&] {
                  y = linear(moved, right_cast);
                  y_of_one = linear(left_cast.narrow(0, 0, 1), right_cast);
              }),
              is_native("tensorwise") ? 2 : 0);
    expect_product(y, values_of(left_cast), values_of(right_cast.all).t());
    expect_product(y_of_one, values_of(left_cast).narrow(0, 0, 1), values_of(right_cast.all).t());
}

TEST_P(GpuFloat8, AProductWithoutAlgorithmIsEmulated) {
    fake_cublaslt().lacks_float8 = true;
    for (const char* name : {"tensorwise", "rowwise"}) {
        const Recipe& recipe = *find_recipe(name);
        const at::Tensor weight = uneven(48, 96);
        const Operand left = of(uneven(64, 96), recipe.forward.left, SumOver::Columns);
        const Stack right =
            Stack::of(weight, recipe).cast(recipe.forward.right, SumOver::Columns, largest_magnitude(weight));
        for (int i = 0; i < 2; ++i) {
            at::Tensor y;
            EXPECT_EQ(float8_products([&] { y = linear(left, right); }), 0);
            expect_product(y, values_of(left), values_of(right.all).t());
        }
    }
}

TEST_P(GpuFloat8, ProductsLeaveMultiprocessorsWhileCollectivesHoldThem) {
    int left = 0;
    context_.choose_products_for([&left] { return left; });
    const at::Tensor x = uneven(16, 16), weight = uneven(16, 16);
    const Recipe& recipe = *find_recipe("rowwise");
    const Operand cast_x = of(x, recipe.forward.left, SumOver::Columns);
    const Stack cast_weight =
        Stack::of(weight, recipe).cast(recipe.forward.right, SumOver::Columns, largest_magnitude(weight));
    for (const int number : {0, 116, 0}) {
        left = number;
        fake_cublaslt().max_multiprocessors = -1;
        linear(x, weight);
        gpu::synchronize();
        EXPECT_EQ(fake_cublaslt().max_multiprocessors, number);
        const OpsContext inner;
        fake_cublaslt().max_multiprocessors = -1;
        linear(cast_x, cast_weight);
        gpu::synchronize();
        EXPECT_EQ(fake_cublaslt().max_multiprocessors, number) << "float8, in an inner context";
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuFloat8,
                         ::testing::Values(Device{80, at::kBFloat16}, Device{90, at::kBFloat16},
                                           Device{90, at::kFloat}, Device{100, at::kBFloat16},
                                           Device{120, at::kBFloat16}),
                         [](const auto& device) {
                             return "cc" + std::to_string(device.param.capability) + "_" +
                                    toString(device.param.type);
                         });

}  // namespace
}  // namespace argosy::ops
