#include "ops/sums.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "ops/numerics.h"
#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

at::Tensor squared_norm_of(const at::Tensor& x) { return squared_norms(std::span(&x, 1))[0]; }

class SumsTest : public OpsTest {
  protected:
    at::ScalarType wide_type() const { return accumulation_type(GetParam().type); }
    double wide_tolerance() const { return wide_type() == at::kDouble ? 1e-13 : 1e-6; }
    at::Tensor wide(at::IntArrayRef shape) { return random_.normal(shape, wide_type()); }
};

TEST_P(SumsTest, RowSumsAddToTheOutput) {
    for (const auto& shape : {std::vector<int64_t>{1, 1}, {0, 5}, {63, 7}, {64, 16}, {65, 33}, {1000, 129}}) {
        const at::Tensor x = normal(shape);
        at::Tensor sum = wide({shape[1]});
        const at::Tensor expected = sum.to(at::kDouble) + x.to(at::kDouble).sum(0);
        add_row_sum(sum, x);
        EXPECT_TRUE(close(sum, expected, wide_tolerance())) << shape;
    }
}

TEST_P(SumsTest, RowSumsOfStridedRows) {
    const at::Tensor x = normal({70, 40}).narrow(1, 3, 19);
    at::Tensor sum = at::zeros({19}, placed(wide_type())), same = sum.clone();
    add_row_sum(sum, x);
    add_row_sum(same, x.contiguous());
    EXPECT_TRUE(close(sum, same, wide_tolerance()));
}

TEST_P(SumsTest, SquaredNorm) {
    for (const int64_t size : {0, 1, 15, 16, 17, 1000, (1 << 16) + 3}) {
        const at::Tensor x = normal({size});
        const at::Tensor norm = squared_norm_of(x);
        EXPECT_EQ(norm.scalar_type(), at::kDouble);
        EXPECT_TRUE(close(norm, x.to(at::kDouble).square().sum(), 1e-13)) << size;
    }
    const at::Tensor strided = normal({7, 12}).narrow(1, 2, 5);
    EXPECT_TRUE(close(squared_norm_of(strided), strided.to(at::kDouble).square().sum(), 1e-13));
}

TEST_P(SumsTest, SquaredNormsOneByOneHaveTheSameBits) {
    const std::vector<at::Tensor> tensors = {wide({1000, 33}), wide({1}), wide({1 << 16})};
    expect_same_bits_separately([&] { return std::vector{squared_norms(tensors)}; });
}

// Squares that the type itself cannot represent, and many small numbers beside a large one.
TEST_P(SumsTest, SquaredNormLosesNothing) {
    const at::Tensor large = at::full({33}, 1e20, placed(GetParam().type));
    EXPECT_TRUE(close(squared_norm_of(large), large.to(at::kDouble).square().sum(), 1e-14));
    at::Tensor small = at::full({100001}, std::ldexp(1, -13), placed(wide_type()));
    small[0].fill_(4096);  // 2^24: each square is 2^-26 of the sum, below the last bit of fp32
    EXPECT_EQ(squared_norm_of(small).item<double>(), std::ldexp(1, 24) + 100000 * std::ldexp(1, -26));
}

ARGOSY_FOR_EACH_VARIANT(SumsTest);

}  // namespace
}  // namespace argosy::ops
