// The gradient of the first step with products of eight bits against the gradient in fp64: right recipes stay
// below thresholds that wrong scales and a wrong format exceed. README.md derives the thresholds.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "float8/planted_casts.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

struct Control {
    const char* recipe;
    double threshold;
};
constexpr Control kControls[] = {{"tensorwise", 0.110},         {"rowwise", 0.088},
                                 {"rowwise_with_gw_hp", 0.080}, {"blockwise", 0.088},
                                 {"mxfp8_cublas", 0.080},       {"mxfp8_cublas_rceil", 0.080}};

constexpr int kNumLayers = 2;

using parallel::Precision;
constexpr Precision kFloat{at::kFloat, at::kFloat, at::kFloat},
    kDouble{at::kDouble, at::kDouble, at::kDouble};

/// Those of a job whose step has many tokens.
NamedTensors gradients(const ops::Recipe* recipe, bool cast_output, const Precision& precision = kFloat) {
    TinyRunOptions options{.precision = precision, .microbatch_size = 8, .seq_len = 64};
    options.spec = tiny_spec("llama3");
    options.spec->dim = 128;
    options.spec->hidden_dim = 256;
    options.spec->head_dim = 32;
    options.spec->num_heads = options.spec->num_kv_heads = 4;
    options.spec->num_layers = kNumLayers;
    options.spec->vocab_size = 256;
    options.casts.recipe = recipe;
    if (!cast_output) options.casts.filter = {"output"};
    TinyRun run(options, self());
    train::StepBatch batch = run.batch(0);
    batch.job_counted_tokens = 1 << 20;
    run.trainer().step().forward_backward(batch);
    return run.gradients();
}

class FirstGradient : public ::testing::TestWithParam<Control> {
  protected:
    ~FirstGradient() override { plant(WrongScale::None); }

    ops::Recipe recipe() const { return *ops::find_recipe(GetParam().recipe); }

    /// By TorchTitan's default keys MXFP8 does not.
    static bool casts_output() { return !std::string_view(GetParam().recipe).starts_with("mxfp8"); }

    /// The mean relative error of the gradients of w2.
    static double error(const NamedTensors& found, const NamedTensors& expected) {
        double sum = 0;
        for (int layer = 0; layer < kNumLayers; ++layer) {
            const std::string name = "layers." + std::to_string(layer) + ".feed_forward.w2.weight";
            const at::Tensor& right = expected.at(name);
            sum += ((found.at(name) - right).norm() / right.norm()).item<double>();
        }
        ::testing::Test::RecordProperty("error", std::to_string(sum / kNumLayers));
        return sum / kNumLayers;
    }
    static double error(const ops::Recipe& recipe, WrongScale wrong = WrongScale::None) {
        static const NamedTensors expected = gradients(nullptr, true, kDouble);
        plant(wrong);
        const NamedTensors found = gradients(&recipe, casts_output());
        plant(WrongScale::None);
        return error(found, expected);
    }
};

TEST_P(FirstGradient, ARightRecipeIsBelowTheThreshold) { EXPECT_LT(error(recipe()), GetParam().threshold); }

TEST_P(FirstGradient, IsRightInEveryTypeOfTheModel) {
    static const NamedTensors expected = gradients(nullptr, true, kDouble);
    for (const at::ScalarType weights : {at::kFloat, at::kBFloat16}) {
        const ops::Recipe casts = recipe();
        const double found =
            error(gradients(&casts, casts_output(), {weights, at::kBFloat16, at::kFloat}), expected);
        EXPECT_LT(found, GetParam().threshold) << toString(weights);
        EXPECT_GT(found, GetParam().threshold / 2) << toString(weights);
    }
}

TEST_P(FirstGradient, PlantedCastsWithTheRightScaleAreTheRealOnes) {
    EXPECT_NEAR(error(recipe(), WrongScale::Right), error(recipe()), 1e-3);
}

TEST_P(FirstGradient, NoScaleIsAbove) { EXPECT_GT(error(recipe(), WrongScale::One), GetParam().threshold); }

TEST_P(FirstGradient, AStaleScaleIsAbove) {
    EXPECT_GT(error(recipe(), WrongScale::Stale), GetParam().threshold);
}

TEST_P(FirstGradient, TheScaleOfAnotherMatrixIsAbove) {
    EXPECT_GT(error(recipe(), WrongScale::Other), GetParam().threshold);
}

TEST_P(FirstGradient, TheWrongFormatInTheForwardProductIsAbove) {
    ops::Recipe wrong = recipe();
    const bool shares_x = wrong.shares_x();
    wrong.forward.left.type = wrong.forward.right.type = at::ScalarType::Float8_e5m2;
    if (shares_x) wrong.weight_gradient.right = wrong.forward.left;
    EXPECT_GT(error(wrong), GetParam().threshold);
}

INSTANTIATE_TEST_SUITE_P(Recipes, FirstGradient, ::testing::ValuesIn(kControls),
                         [](const auto& control) { return std::string(control.param.recipe); });

}  // namespace
}  // namespace argosy::testing
