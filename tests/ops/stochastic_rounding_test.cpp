#include "ops/stochastic_rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/ops_test.h"
#include "support/tensors.h"

namespace argosy::ops {
namespace {

using ::argosy::testing::identical;
using ::argosy::testing::place;
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
    const at::Tensor odd = at::tensor({0.0, -0.0, infinity, -infinity, -1.0}, at::kFloat);
    const at::Tensor expected = odd.to(at::kBFloat16).to(at::kFloat);
    for (int step = 0; step < 50; ++step) {
        const at::Tensor rounded = rounded_stochastically(odd, {.length = 5}, step, kKey).to(at::kFloat);
        EXPECT_TRUE(identical(rounded, expected));
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

TEST_F(StochasticRounding, DiffersByNumberSeedNamePurposeAndPart) {
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
                                    rounded(1, rounding_key(7, name, Rounded::SecondMoment)),
                                    rounded(1, rounding_key(7, name, Rounded::Weight, 1)),
                                    rounded(1, rounding_key(7, name, Rounded::Weight, 2))}) {
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

/// A sum of `count` elements of a parameter, each of which is the same number of terms.
class RoundedSum {
  public:
    explicit RoundedSum(int64_t count) : sum_(at::zeros({count}, placed(at::kBFloat16))), first_(place()) {
        rounding_ = {kKey, {.first = 21, .length = 1000, .stride = 1700}, &first_};
    }
    /// Adds `term` to each element, as microbatch `number` does.
    void add(const at::Tensor& term, int64_t number) {
        first_.set(rounding_number(/*update=*/3, number));
        add_rounded(sum_, term, /*accumulate=*/number > 0, rounding_);
    }
    at::Tensor sum() const { return sum_; }

  private:
    at::Tensor sum_;
    FirstRounding first_;
    SumRounding rounding_;
};

class RoundedSums : public OpsTest {};

// The mean over many elements of sums in bf16 is the sum in fp64. Rounded to nearest, a sum stops to grow as
// soon as its last bit is more than two terms: 600 terms of 0.7 stop at 256.
TEST_P(RoundedSums, AreUnbiasedWhereRoundingToNearestStops) {
    constexpr int64_t kCount = 4096, kNumTerms = 600;
    constexpr float kTerm = 0.7F;
    const at::Tensor term = at::full({kCount}, kTerm, placed(at::kFloat));
    RoundedSum rounded(kCount);
    at::Tensor nearest = at::zeros({}, at::kBFloat16);
    for (int64_t i = 0; i < kNumTerms; ++i) {
        rounded.add(term, i);
        nearest = (nearest.to(at::kFloat) + kTerm).to(at::kBFloat16);
    }
    const double expected = kNumTerms * double{kTerm};  // 420
    EXPECT_LT(nearest.item<double>(), 0.65 * expected);
    const at::Tensor found = rounded.sum().to(at::kCPU).to(at::kDouble);
    const double mean = found.mean().item<double>();
    const double deviation = std::sqrt((found - mean).square().mean().item<double>());
    EXPECT_NEAR(mean, expected, 4 * deviation / std::sqrt(double{kCount}));
    EXPECT_GT(deviation, 1) << "nothing was rounded";
    EXPECT_LT(deviation / expected, 0.05);
}

// Sizes around those of the kernels' tiles and packs; rows of slabs; numbers of all sizes.
TEST_P(RoundedSums, KernelsGiveTheBitsOfTheDefinition) {
    for (const int64_t size : {1, 7, 8, 9, 511, 512, 513, 1700, 70000}) {
        RoundedSum own(size), plain(size);
        for (int64_t i = 0; i < 4; ++i) {
            const at::Tensor term = random_.normal({size}, at::kFloat, std::pow(10.0, i * 3 - 6));
            own.add(term, i);
            const OpsContext context(Path::Plain);
            plain.add(term, i);
        }
        EXPECT_TRUE(identical(own.sum(), plain.sum())) << size;
    }
}

// Roundings of other updates, of other microbatches, and in other places of a microbatch differ; the same
// number repeats the bits, whichever of its parts is counted from the first rounding.
TEST_P(RoundedSums, DependOnTheNumberAlone) {
    const at::Tensor term = random_.normal({4096}, at::kFloat);
    const at::Tensor sum = at::empty({4096}, placed(at::kBFloat16));
    FirstRounding first(place());
    const auto rounded = [&](uint64_t number, int64_t microbatch, int64_t count) {
        first.set(number);
        add_rounded(sum, term, /*accumulate=*/false, {kKey, {.length = 4096}, &first, microbatch, count});
        return sum.clone();
    };
    const at::Tensor one = rounded(rounding_number(5, 2, 1), 0, 0);
    EXPECT_TRUE(identical(rounded(rounding_number(5, 2), 0, 1), one));
    EXPECT_TRUE(identical(rounded(rounding_number(5, 0), 2, 1), one));
    EXPECT_FALSE(identical(rounded(rounding_number(5, 2), 0, 0), one));
    EXPECT_FALSE(identical(rounded(rounding_number(5, 0), 1, 1), one));
    EXPECT_FALSE(identical(rounded(rounding_number(6, 0), 2, 1), one));
}

// The rows of a part are rounded as in the whole, for a slab of all columns and for a slab of some.
TEST_P(RoundedSums, PartsRoundAsTheWhole) {
    const at::Tensor term = random_.normal({12, 10}, at::kFloat);
    FirstRounding first(place());
    for (const layout::SlabRows& rows : {layout::SlabRows{.first = 40, .length = 10, .stride = 10},
                                         layout::SlabRows{.first = 7, .length = 10, .stride = 33}}) {
        const SumRounding rounding{kKey, rows, &first};
        const at::Tensor whole = at::empty({12, 10}, placed(at::kBFloat16)), parts = at::empty_like(whole);
        add_rounded(whole, term, /*accumulate=*/false, rounding);
        for (const auto& [begin, count] : {std::pair{0, 5}, {5, 1}, {6, 6}}) {
            add_rounded(parts.narrow(0, begin, count), term.narrow(0, begin, count), /*accumulate=*/false,
                        rounding.from(10 * begin));
        }
        EXPECT_TRUE(identical(parts, whole));
    }
}

INSTANTIATE_TEST_SUITE_P(Variants, RoundedSums,
                         ::testing::Values(Variant{"bf16", Path::Fused, at::kBFloat16, 1.0 / 128}),
                         variant_name);

}  // namespace
}  // namespace argosy::ops
