// Casts and products of float8 on a GPU, by each recipe: casts have the processor's bits, and products are
// those of fp64 as far as the sums' bits go.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "ops/float8.h"
#include "ops/float8_products.h"
#include "ops/gpu_float8.h"
#include "ops/matmul.h"
#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

Operand on_processor(const Operand& x) {
    const auto copied = [](const at::Tensor& each) {
        return each.defined() ? each.to(c10::Device(c10::kCPU)) : each;
    };
    return {copied(x.values), copied(x.scale), x.type, copied(x.other_order)};
}

double distance(const at::Tensor& found, const at::Tensor& expected) {
    return ((found.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

/// The three products of a layer, of operands that are cast already.
struct Products {
    at::Tensor y, dx, dw;
};

/// The operands of the three products of a layer with `tokens` rows, cast on the GPU.
struct Layer {
    Operand x_of_y, w_of_y, dy_of_dx, w_of_dx, dy_of_dw, x_of_dw;
    const Recipe* recipe;

    Products multiply() const {
        at::Tensor dw = at::empty({dy_of_dw.values.size(1), x_of_dw.values.size(1)},
                                  x_of_y.values.options().dtype(at::kFloat));
        linear_weight_gradient(dw, dy_of_dw, x_of_dw, /*accumulate=*/false, recipe->accumulation);
        return {linear(x_of_y, Stack{{}, w_of_y, recipe}),
                linear_input_gradient(dy_of_dx, Stack{{}, w_of_dx, recipe}), dw};
    }
    Layer copied() const {
        return {on_processor(x_of_y),
                on_processor(w_of_y),
                on_processor(dy_of_dx),
                on_processor(w_of_dx),
                on_processor(dy_of_dw),
                on_processor(x_of_dw),
                recipe};
    }
};

class DeviceFloat8 : public ::testing::Test {
  protected:
    at::Tensor uneven(int64_t rows, int64_t columns, at::ScalarType type) {
        const auto normal = [&](int64_t m, int64_t n) { return random_.normal({m, n}, at::kDouble, 1); };
        return (normal(rows, columns) * (normal(rows, 1) + normal(1, columns)).exp()).to(type);
    }
    static Operand of(const at::Tensor& x, const Cast& how, SumOver summed) {
        return cast(x, how, summed, how.scaling == Scaling::Matrix ? largest_magnitude(x) : at::Tensor());
    }
    Layer layer(const Recipe& recipe, int64_t tokens, int64_t out, int64_t in, at::ScalarType type) {
        const at::Tensor x = uneven(tokens, in, type), w = uneven(out, in, type),
                         dy = uneven(tokens, out, type);
        return {of(x, recipe.forward.left, SumOver::Columns),
                of(w, recipe.forward.right, SumOver::Columns),
                of(dy, recipe.input_gradient.left, SumOver::Columns),
                of(w, recipe.input_gradient.right, SumOver::Rows),
                of(dy, recipe.weight_gradient.left, SumOver::Rows),
                of(x, recipe.weight_gradient.right, SumOver::Rows),
                &recipe};
    }

    OpsContext context_;
    ::argosy::testing::RandomTensors random_{1};
};

TEST_F(DeviceFloat8, CastsHaveTheProcessorsBits) {
    for (const char* name : kRecipeNames) {
        const Recipe& recipe = *find_recipe(name);
        const at::Tensor x = uneven(256, 384, at::kBFloat16), copy = x.cpu();
        for (const Cast& how : {recipe.forward.left, recipe.forward.right, recipe.input_gradient.left}) {
            for (const SumOver summed : {SumOver::Rows, SumOver::Columns}) {
                const Operand found = on_processor(of(x, how, summed)), expected = of(copy, how, summed);
                EXPECT_TRUE(found.values.view(at::kByte).equal(expected.values.view(at::kByte))) << name;
                EXPECT_TRUE(found.scale.view(at::kByte).equal(expected.scale.view(at::kByte))) << name;
            }
        }
    }
}

// The bound is for results in bf16 after sums of 13 bits: a wrong scale, order or place of a scale exceeds
// it.
TEST_F(DeviceFloat8, ProductsOfEachRecipeAreThoseOfFp64) {
    for (const char* name : kRecipeNames) {
        for (const auto& [tokens, out, in] : {std::array<int64_t, 3>{256, 384, 640}, {2048, 1152, 896}}) {
            SCOPED_TRACE(fmt::format("{}, {} x {} x {}", name, tokens, out, in));
            const Layer layer = this->layer(*find_recipe(name), tokens, out, in, at::kBFloat16);
            const Layer copy = layer.copied();
            const Products found = layer.multiply();
            EXPECT_LT(distance(found.y.cpu(), values_of(copy.x_of_y).mm(values_of(copy.w_of_y).t())), 4e-3);
            EXPECT_LT(distance(found.dx.cpu(), values_of(copy.dy_of_dx).mm(values_of(copy.w_of_dx))), 4e-3);
            EXPECT_LT(distance(found.dw.cpu(), values_of(copy.dy_of_dw).t().mm(values_of(copy.x_of_dw))),
                      4e-3);
        }
    }
}

}  // namespace
}  // namespace argosy::ops
