#include "optim/stochastic_rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "support/tensors.h"

namespace argosy::optim {
namespace {

using ::argosy::testing::identical;
using layout::SlabRows;

const RoundingKey kKey = rounding_key(7, "layers.0.attention.wq.weight", Rounded::Weight);

class StochasticRounding : public ::testing::Test {
  protected:
    /// The two bf16 numbers around x, the one nearer to zero first.
    static std::pair<double, double> neighbours(float x) {
        const uint32_t down = std::bit_cast<uint32_t>(x) & 0xFFFF0000;
        return {std::bit_cast<float>(down), std::bit_cast<float>(down + 0x10000)};
    }

    c10::InferenceMode guard_;
    testing::RandomTensors random_{3};
};

// Numbers of all sizes and both signs, subnormal ones too, are rounded to one of their two neighbours, and on
// average over many elements to themselves.
TEST_F(StochasticRounding, IsUnbiasedAndTakesANeighbour) {
    constexpr int64_t kCount = 20000;
    for (const float x : {1.001F, -3.14159F, 1e-3F, 7.77e30F, -1e-39F, 0.99999F, 1.00390625F}) {
        const auto [toward, away] = neighbours(x);
        const at::Tensor rounded =
            rounded_stochastically(at::full({kCount}, x, at::kFloat), {.length = kCount}, 5, kKey)
                .to(at::kDouble);
        EXPECT_TRUE(rounded.eq(toward).logical_or(rounded.eq(away)).all().item<bool>()) << x;
        const double share = (static_cast<double>(x) - toward) / (away - toward);
        const double found = rounded.eq(away).to(at::kDouble).mean().item<double>();
        EXPECT_NEAR(found, share, 4 * std::sqrt(share * (1 - share) / kCount)) << x;
    }
}

TEST_F(StochasticRounding, LeavesNumbersThatAreExactOrNotFinite) {
    const at::Tensor exact = random_.normal({4096}, at::kBFloat16);
    EXPECT_TRUE(identical(rounded_stochastically(exact.to(at::kFloat), {.length = 4096}, 1, kKey), exact));
    const double infinity = std::numeric_limits<double>::infinity();
    const at::Tensor odd = at::tensor({0.0, -0.0, infinity, -infinity, 3.0e-39, -1.0}, at::kFloat);
    const at::Tensor expected = odd.to(at::kBFloat16).to(at::kFloat);
    for (int step = 0; step < 50; ++step) {
        const at::Tensor rounded = rounded_stochastically(odd, {.length = 6}, step, kKey).to(at::kFloat);
        EXPECT_TRUE(identical(rounded.narrow(0, 0, 4), expected.narrow(0, 0, 4)));
        const at::Tensor nan = at::full({3}, std::nan(""), at::kFloat);
        EXPECT_TRUE(rounded_stochastically(nan, {.length = 3}, step, kKey).isnan().all().item<bool>());
    }
}

// A slab of a tensor gets the bits of the whole tensor, whether rows, columns or both are cut.
TEST_F(StochasticRounding, DoesNotDependOnTheLayout) {
    const std::vector<int64_t> shape = {13, 27};
    const at::Tensor wide = random_.normal(shape, at::kFloat);
    const at::Tensor whole = rounded_stochastically(wide, {.length = wide.numel()}, 9, kKey);
    for (const layout::Slab& slab : {layout::Slab{{3, 0}, {6, 27}}, layout::Slab{{0, 11}, {13, 7}},
                                     layout::Slab{{5, 20}, {8, 7}}, layout::Slab{{12, 26}, {1, 1}}}) {
        const auto part = [&](const at::Tensor& x) {
            return x.narrow(0, slab.offset[0], slab.size[0]).narrow(1, slab.offset[1], slab.size[1]);
        };
        const at::Tensor found = rounded_stochastically(part(wide), layout::rows_of(shape, slab), 9, kKey);
        EXPECT_TRUE(identical(found, part(whole)));
    }
}

TEST_F(StochasticRounding, DiffersByStepSeedNameAndPurpose) {
    const at::Tensor wide = random_.normal({4096}, at::kFloat);
    const auto rounded = [&](uint64_t step, const RoundingKey& key) {
        return rounded_stochastically(wide, {.length = 4096}, step, key).to(at::kDouble);
    };
    const at::Tensor one = rounded(1, kKey);
    EXPECT_TRUE(identical(rounded(1, kKey), one));
    const char* name = "layers.0.attention.wq.weight";
    for (const at::Tensor& other : {rounded(2, kKey), rounded(1 + (uint64_t{1} << 32), kKey),
                                    rounded(1, rounding_key(8, name, Rounded::Weight)),
                                    rounded(1, rounding_key(7, "b", Rounded::Weight)),
                                    rounded(1, rounding_key(7, name, Rounded::FirstMoment)),
                                    rounded(1, rounding_key(7, name, Rounded::SecondMoment))}) {
        // Of a number that lies anywhere between its neighbours two roundings differ with probability 1/3.
        const double differ = other.ne(one).to(at::kDouble).mean().item<double>();
        EXPECT_NEAR(differ, 1.0 / 3, 4 * std::sqrt(2.0 / 9 / 4096));
    }
}

// The definition in the header, computed in another language.
TEST_F(StochasticRounding, IsTheDocumentedFunction) {
    EXPECT_EQ(kKey, (RoundingKey{0x1630c1e0, 0xebc76b10}));
    const at::Tensor wide = at::full({10}, 1.004, at::kFloat);
    const at::Tensor rounded =
        rounded_stochastically(wide, {.first = (int64_t{1} << 40) + 5, .length = 10}, 3, kKey);
    const double away = 1.0078125;
    const at::Tensor expected =
        at::tensor({1.0, 1.0, away, away, away, 1.0, away, 1.0, away, 1.0}, at::kDouble);
    EXPECT_TRUE(identical(rounded.to(at::kDouble), expected));
}

}  // namespace
}  // namespace argosy::optim
