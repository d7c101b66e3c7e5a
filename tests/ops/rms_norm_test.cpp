#include "ops/rms_norm.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>

#include "gpu/device.h"
#include "ops/numerics.h"
#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

// Large inputs, because in a row of one element x / rms is the sign of x and dx depends only on eps.
constexpr double kEps = 0.1;

/// Of x and the weight.
auto formula_of(const Norm& norm) {
    return [norm](const std::vector<at::Tensor>& in) {
        return in[0] / (in[0].pow(2).mean(-1, /*keepdim=*/true) + norm.eps).sqrt() *
               (norm.weight_offset + in[1]);
    };
}

class RmsNormTest : public OpsTest {
  protected:
    void check(at::IntArrayRef shape, double scale = 1, double weight_offset = 0) {
        const at::Tensor x = normal(shape, scale), weight = normal({shape.back()}), dy = normal(shape);
        const Norm norm{weight, kEps, weight_offset};
        const Differentiated oracle = differentiate(formula_of(norm), {x, weight}, dy);
        const auto [y, inverse_rms] = rms_norm(x, norm);
        EXPECT_TRUE(right(y, oracle.value)) << shape;
        EXPECT_EQ(inverse_rms.scalar_type(), accumulation_type(x.scalar_type()));

        const auto [dx, dw] = rms_norm_backward(dy, x, norm, inverse_rms);
        EXPECT_TRUE(right(dx, oracle.gradients[0])) << shape;
        EXPECT_TRUE(close(dw, oracle.gradients[1], GetParam().tolerance)) << shape;
        EXPECT_EQ(dw.scalar_type(), accumulation_type(x.scalar_type()));
    }
};

TEST_P(RmsNormTest, Rows) {
    for (const auto& shape :
         {std::vector<int64_t>{1, 1}, {1, 7}, {5, 1}, {13, 17}, {3, 64}, {31, 129}, {200, 24}})
        check(shape);
}

// The gradient that bypasses the norm.
TEST_P(RmsNormTest, WithAResidual) {
    for (const auto& shape : {std::vector<int64_t>{1, 1}, {0, 8}, {13, 17}, {31, 129}, {130, 32}}) {
        const at::Tensor x = normal(shape), weight = normal({shape.back()});
        const at::Tensor dy = normal(shape), residual = normal(shape);
        const Differentiated oracle = differentiate(formula_of({weight, kEps}), {x, weight}, dy);
        const auto [dx, dw] =
            rms_norm_backward(dy, x, {weight, kEps}, rms_norm(x, {weight, kEps}).inverse_rms, residual);
        EXPECT_TRUE(right(dx, oracle.gradients[0] + residual.to(at::kDouble))) << shape;
        EXPECT_TRUE(close(dw, oracle.gradients[1], GetParam().tolerance)) << shape;
    }
}

TEST_P(RmsNormTest, ASeparateAdditionGivesTheSameBits) {
    for (const auto& shape : {std::vector<int64_t>{0, 8}, {13, 17}, {31, 129}, {130, 32}, {3, 2048}}) {
        const at::Tensor x = normal(shape), weight = normal({shape.back()});
        const at::Tensor dy = normal(shape), residual = normal(shape);
        expect_same_bits_separately([&] {
            const auto [y, inverse_rms] = rms_norm(x, {weight, kEps});
            const auto [dx, dw] = rms_norm_backward(dy, x, {weight, kEps}, inverse_rms, residual);
            return std::vector{y, inverse_rms, dx, dw};
        });
    }
}

TEST_P(RmsNormTest, WithAnOffsetOfTheWeight) {
    for (const auto& shape : {std::vector<int64_t>{1, 1}, {0, 8}, {13, 17}, {31, 129}, {3, 5, 6}, {3, 2048}})
        check(shape, /*scale=*/1, /*weight_offset=*/1);
}

// 1.003 is 1 in bf16: the sum with the offset must not be rounded to the type of the weight.
TEST_P(RmsNormTest, AnOffsetLosesNoBitsOfTheWeight) {
    const at::Tensor x = normal({31, 129}), weight = at::full_like(x[0], 0.003);
    const auto [y, inverse_rms] = rms_norm(x, {weight, kEps, 1});
    EXPECT_TRUE(identical(y, (widened(x) * inverse_rms * (1 + widened(weight))).to(GetParam().type)));
    EXPECT_FALSE(y.equal(rms_norm(x, {at::zeros_like(weight), kEps, 1}).y));
}

TEST_P(RmsNormTest, StridedRows) {
    const at::Tensor x = normal({9, 40}).narrow(1, 3, 17), dy = normal({17, 9}).t(), weight = normal({17});
    const at::Tensor residual = normal({9, 20}).narrow(1, 0, 17);
    const auto [y, r] = rms_norm(x, {weight, kEps});
    const auto [same_y, same_r] = rms_norm(x.contiguous(), {weight, kEps});
    EXPECT_TRUE(right(y, same_y));
    const auto [dx, dw] = rms_norm_backward(dy, x, {weight, kEps}, r, residual);
    const auto [same_dx, same_dw] =
        rms_norm_backward(dy.contiguous(), x.contiguous(), {weight, kEps}, same_r, residual.contiguous());
    EXPECT_TRUE(right(dx, same_dx));
    EXPECT_TRUE(close(dw, same_dw, 1e-6));
}

TEST_P(RmsNormTest, HeadsOfEveryToken) { check({3, 5, 6}); }

TEST_P(RmsNormTest, NoRows) { check({0, 8}); }

TEST_P(RmsNormTest, SmallAndLargeRows) {
    check({4, 33}, /*scale=*/1e-4);  // eps dominates
    check({4, 33}, /*scale=*/1e6);
}

TEST_P(RmsNormTest, RowOfZerosIsZero) {
    const at::Tensor x = normal({2, 8}).zero_(), weight = normal({8});
    const auto [y, inverse_rms] = rms_norm(x, {weight, kEps});
    EXPECT_EQ(y.abs().max().item<double>(), 0);
    const auto [dx, dw] = rms_norm_backward(normal({2, 8}), x, {weight, kEps}, inverse_rms);
    EXPECT_TRUE(dx.isfinite().all().item<bool>());
    EXPECT_EQ(dw.abs().max().item<double>(), 0);
}

// Heads that are some columns of a matrix; dx is written to such columns too, and nothing beside them
// changes.
TEST_P(RmsNormTest, HeadsOfColumns) {
    struct Heads {
        int64_t heads, size, columns, begin;
    };
    for (const auto& [heads, size, columns, begin] : {Heads{3, 10, 37, 3},
                                                      {1, 64, 128, 32},
                                                      {5, 64, 448, 64},
                                                      {2, 128, 320, 32},
                                                      {3, 64, 198, 0},
                                                      {3, 64, 200, 3}}) {
        SCOPED_TRACE(columns);
        constexpr int64_t kTokens = 70;
        const auto heads_of = [&](const at::Tensor& wide) {
            return wide.narrow(1, begin, heads * size).view({kTokens, -1, size});
        };
        const at::Tensor wide = normal({kTokens, columns}), x = heads_of(wide), dense = x.contiguous();
        const at::Tensor weight = normal({size}), dy = normal(dense.sizes());
        // A GPU adds up a row in another order if its packs of 16 bytes are not aligned to 16 bytes.
        const bool any_order = gpu::holds(x) && size % 8 == 0 && (columns % 8 != 0 || begin % 8 != 0);
        const auto same = [&](const at::Tensor& found, const at::Tensor& expected) {
            return any_order ? close(found, expected, GetParam().tolerance) : identical(found, expected);
        };
        const auto [y, inverse_rms] = rms_norm(x, {weight, 1e-5});
        EXPECT_TRUE(same(y, rms_norm(dense, {weight, 1e-5}).y));
        EXPECT_TRUE(same(inverse_rms, rms_norm(dense, {weight, 1e-5}).inverse_rms));

        const auto [dx, dw] = rms_norm_backward(dy, dense, {weight, 1e-5}, inverse_rms);
        at::Tensor wide_dx = normal(wide.sizes()), beside = wide_dx.clone();
        EXPECT_TRUE(same(write_rms_norm_backward(heads_of(wide_dx), dy, x, {weight, 1e-5}, inverse_rms), dw));
        EXPECT_TRUE(same(heads_of(wide_dx), dx));
        heads_of(beside).copy_(heads_of(wide_dx));
        EXPECT_TRUE(identical(wide_dx, beside));
    }
}

ARGOSY_FOR_EACH_VARIANT(RmsNormTest);

}  // namespace
}  // namespace argosy::ops
