// AdamW with weights and moments in bf16, and with copies in the compute type. The kernels compute the bits
// of the plain composition, its rounding is right on average, and slabs of a parameter get the bits of the
// whole.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/environment.h"
#include "kernels/table.h"
#include "ops/ops_context.h"
#include "support/tensors.h"
#include "train/adamw.h"

namespace argosy::train {
namespace {

using ::argosy::testing::identical;
using ops::Path;

struct Types {
    const char* name;
    at::ScalarType weights, compute, moments;
    at::ScalarType gradient = at::kFloat;
};
void PrintTo(const Types& types, std::ostream* out) { *out << types.name; }

constexpr Types kTypes[] = {
    {"fp32", at::kFloat, at::kFloat, at::kFloat},
    {"bf16_mixed", at::kFloat, at::kBFloat16, at::kFloat},
    {"bf16_states", at::kFloat, at::kFloat, at::kBFloat16},
    {"bf16_mixed_and_states", at::kFloat, at::kBFloat16, at::kBFloat16},
    {"pure_bf16", at::kBFloat16, at::kBFloat16, at::kFloat},
    {"pure_bf16_and_states", at::kBFloat16, at::kBFloat16, at::kBFloat16},
    {"bf16_gradient", at::kFloat, at::kBFloat16, at::kFloat, at::kBFloat16},
    {"all_bf16", at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kBFloat16},
};

constexpr double kLr = 1e-3, kFactor = 0.37;

/// A parameter, or a slab of it, with its optimizer.
struct Parameter {
    Parameter(const Types& types, const at::Tensor& start, const layout::SlabRows& rows, uint64_t seed)
        : weights(start.contiguous().to(types.weights, /*non_blocking=*/false, /*copy=*/true)),
          compute(types.compute == types.weights ? weights : at::empty(weights.sizes(), types.compute)),
          gradient(at::empty(weights.sizes(), types.gradient)),
          optimizer({.moments = types.moments, .seed = seed}, {{.name = "p",
                                                                .rows = rows,
                                                                .weights = weights,
                                                                .compute = compute,
                                                                .gradient = gradient,
                                                                .weight_decay = 0.1}}) {}

    void step(const at::Tensor& new_gradient) {
        gradient.copy_(new_gradient);
        optimizer.update({++num_updates, kLr, kFactor});
    }
    std::vector<at::Tensor> all() const { return {weights, compute, moment(0), moment(1)}; }

    at::Tensor moment(int i) const { return optimizer.states()[i].tensor; }

    at::Tensor weights, compute, gradient;
    AdamW optimizer;
    int64_t num_updates = 0;
};

::testing::AssertionResult identical(const Parameter& found, const Parameter& expected) {
    for (size_t i = 0; i < expected.all().size(); ++i) {
        ::testing::AssertionResult result = identical(found.all()[i], expected.all()[i]);
        if (!result) return result << " of tensor " << i;
    }
    return ::testing::AssertionSuccess();
}

bool kernels_available() {
    const std::string name = Environment::read().cpu_kernels;
    for (const kernels::Table* table : kernels::available_tables()) {
        if (name == table->name) return true;
    }
    return name.empty();
}

class AdamWTypes : public ::testing::TestWithParam<Types> {
  protected:
    void SetUp() override {
        if (!kernels_available()) GTEST_SKIP() << "this processor lacks the kernels' instruction set";
    }
    ops::OpsContext context_;
    testing::RandomTensors random_{8};
};

// Sizes are around those of vectors and of the kernel's tiles; some numbers are very large, small or
// subnormal.
TEST_P(AdamWTypes, KernelsGiveTheBitsOfThePlainComposition) {
    for (const int64_t size : {1, 7, 8, 9, 16, 31, 511, 512, 513, 1500, 70000}) {
        SCOPED_TRACE(size);
        const at::Tensor start = random_.normal({size}, at::kFloat);
        const layout::SlabRows rows{.first = 13, .length = 600, .stride = 1003};
        Parameter own(GetParam(), start, rows, 5), plain(GetParam(), start, rows, 5);
        for (const double scale : {1.0, 1e-3, 1e4, 1e-30}) {
            const at::Tensor gradient = random_.normal({size}, at::kFloat, scale);
            own.step(gradient);
            {
                const ops::OpsContext plain_context(Path::Plain);
                plain.step(gradient);
            }
            ASSERT_TRUE(identical(own, plain)) << "gradients of " << scale;
        }
    }
}

TEST_P(AdamWTypes, TheCopyIsTheRoundedWeights) {
    Parameter parameter(GetParam(), random_.normal({100}, at::kFloat), {.length = 100}, 5);
    parameter.step(random_.normal({100}, at::kFloat));
    EXPECT_TRUE(identical(parameter.compute, parameter.weights.to(GetParam().compute)));
}

// One rank holds the parameter, or two or four ranks hold rows, columns or blocks.
TEST_P(AdamWTypes, SlabsGetTheBitsOfTheWhole) {
    const std::vector<int64_t> shape = {12, 52};
    const at::Tensor start = random_.normal(shape, at::kFloat);
    Parameter whole(GetParam(), start, {.length = 12 * 52}, 5);
    const std::vector<layout::Slab> slabs = {{{0, 0}, {6, 52}},  {{6, 0}, {6, 52}},  {{0, 13}, {12, 13}},
                                             {{9, 0}, {3, 52}},  {{0, 26}, {6, 26}}, {{6, 26}, {6, 26}},
                                             {{0, 51}, {12, 1}}, {{7, 39}, {4, 13}}};
    const auto part = [](const at::Tensor& x, const layout::Slab& slab) {
        return x.narrow(0, slab.offset[0], slab.size[0]).narrow(1, slab.offset[1], slab.size[1]);
    };
    std::vector<std::unique_ptr<Parameter>> pieces;
    for (const layout::Slab& slab : slabs) {
        pieces.push_back(
            std::make_unique<Parameter>(GetParam(), part(start, slab), layout::rows_of(shape, slab), 5));
    }
    for (int step = 0; step < 5; ++step) {
        const at::Tensor gradient = random_.normal(shape, at::kFloat);
        whole.step(gradient);
        for (size_t i = 0; i < slabs.size(); ++i) {
            pieces[i]->step(part(gradient, slabs[i]));
            for (size_t j = 0; j < whole.all().size(); ++j) {
                ASSERT_TRUE(identical(pieces[i]->all()[j], part(whole.all()[j], slabs[i])))
                    << "slab " << i << ", tensor " << j;
            }
        }
    }
}

// The steps are far below a bf16 weight's last bit. The mean over many seeds moves as in fp64; rounding to
// nearest would leave every weight unchanged.
TEST_P(AdamWTypes, IsRightOnAverage) {
    constexpr int kNumSeeds = 4000, kNumSteps = 3;
    constexpr double kStart = 1.25;
    double weight = kStart, first = 0, second = 0;
    at::Tensor weights = at::full({kNumSeeds}, 0, at::kDouble), firsts = weights.clone(),
               seconds = weights.clone();
    const at::Tensor gradient = at::full({1}, 0.3, GetParam().gradient);
    for (int step = 1; step <= kNumSteps; ++step) {
        const double g = gradient.item<double>() * kFactor;
        first = 0.9 * first + 0.1 * g;
        second = 0.95 * second + 0.05 * g * g;
        weight -= kLr * 0.1 * weight;
        weight -=
            kLr * first / (1 - std::pow(0.9, step)) / (std::sqrt(second / (1 - std::pow(0.95, step))) + 1e-8);
    }
    for (int seed = 0; seed < kNumSeeds; ++seed) {
        Parameter parameter(GetParam(), at::full({1}, kStart, at::kFloat), {.length = 1}, seed);
        for (int step = 0; step < kNumSteps; ++step) parameter.step(gradient);
        weights[seed].fill_(parameter.weights[0].item<double>());
        firsts[seed].fill_(parameter.moment(0)[0].item<double>());
        seconds[seed].fill_(parameter.moment(1)[0].item<double>());
    }
    const auto expect_mean = [](const at::Tensor& found, double expected, const char* what) {
        const double mean = found.mean().item<double>();
        const double sigma = std::sqrt((found - mean).square().mean().item<double>() / kNumSeeds);
        EXPECT_NEAR(mean, expected, 4 * sigma + 1e-6 * std::abs(expected)) << what;
    };
    expect_mean(firsts, first, "first moment");
    expect_mean(seconds, second, "second moment");
    expect_mean(weights, weight, "weight");
}

TEST_P(AdamWTypes, AnotherSeedRoundsOtherwise) {
    const at::Tensor start = random_.normal({64}, at::kFloat), gradient = random_.normal({64}, at::kFloat);
    Parameter one(GetParam(), start, {.length = 64}, 5), same(GetParam(), start, {.length = 64}, 5),
        other(GetParam(), start, {.length = 64}, 6);
    for (Parameter* parameter : {&one, &same, &other}) parameter->step(gradient);
    EXPECT_TRUE(identical(same, one));
    const bool rounds = GetParam().weights == at::kBFloat16 || GetParam().moments == at::kBFloat16;
    EXPECT_EQ(!identical(other, one), rounds);
}

INSTANTIATE_TEST_SUITE_P(All, AdamWTypes, ::testing::ValuesIn(kTypes),
                         [](const auto& types) { return std::string(types.param.name); });

}  // namespace
}  // namespace argosy::train
