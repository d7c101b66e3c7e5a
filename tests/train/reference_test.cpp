// Comparison with Hugging Face transformers: initial weights, logits, gradients and twenty steps of training
// are those that tests/reference/ recorded. Its README says what the tolerances can and cannot detect.
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>

#include "comm/mesh.h"
#include "ops/ops_context.h"
#include "support/reference.h"
#include "support/world.h"
#include "train/trainer.h"

namespace argosy::testing {
namespace {

constexpr parallel::Precision kDouble{at::kDouble, at::kDouble, at::kDouble};
constexpr parallel::Precision kFloat{at::kFloat, at::kFloat, at::kFloat};

class AgainstTransformers : public ::testing::TestWithParam<std::string> {
  protected:
    AgainstTransformers()
        : reference_(GetParam()),
          tokens_(reference_.read("tokens")),
          targets_(reference_.read("targets")),
          mesh_(layout::resolve({}, self().size()), self()) {}

    std::unique_ptr<train::Trainer> trainer(const parallel::Precision& precision) {
        train::TrainerOptions options{.spec = reference_.spec(),
                                      .model = {.precision = precision,
                                                .seq_len = tokens_.size(2),
                                                .microbatch_size = tokens_.size(1),
                                                .seed = reference_.seed()}};
        return std::make_unique<train::Trainer>(options, mesh_);
    }

    train::StepBatch batch(int64_t step) const {
        train::StepBatch result;
        result.microbatches.push_back(
            {tokens_[step].flatten(), targets_[step].flatten(), tokens_.size(1), tokens_.size(2)});
        result.counted_tokens = targets_[step].ge(0).sum().item<int64_t>();
        result.job_counted_tokens = result.counted_tokens;
        return result;
    }

    Reference reference_;
    at::Tensor tokens_, targets_;  // [steps, sequences, seq_len]
    comm::Mesh mesh_;
};

/// The router of a model whose tokens go to one expert, with the weight 1, has a gradient of 0 but for
/// rounding.
constexpr double kRounding = 1e-18;

void expect_close(const at::Tensor& found, const at::Tensor& expected, double tolerance,
                  const std::string& what) {
    const at::Tensor wide = expected.to(at::kDouble);
    const double difference = (found.to(at::kDouble) - wide).abs().max().item<double>();
    EXPECT_LE(difference, tolerance * wide.abs().max().item<double>() + kRounding) << what;
}

TEST_P(AgainstTransformers, InitialWeights) {
    const auto run = trainer(kFloat);
    EXPECT_EQ(run->model().parameters().size(), reference_.names("init_probe").size());
    for (const auto& parameter : run->model().parameters()) {
        const at::Tensor values = parameter->master().flatten().to(at::kDouble);
        const at::Tensor probe = reference_.read("init_probe/" + parameter->spec().name);
        const double size = probe[1].item<double>();  // the sum of absolute values
        EXPECT_NEAR(values.sum().item<double>(), probe[0].item<double>(), 1e-12 * size)
            << parameter->spec().name;
        EXPECT_NEAR(values.abs().sum().item<double>(), size, 1e-12 * size) << parameter->spec().name;
        EXPECT_TRUE(values.narrow(0, 0, 4).equal(probe.narrow(0, 2, 4))) << parameter->spec().name;
    }
}

TEST_P(AgainstTransformers, Logits) {
    const auto run = trainer(kDouble);
    const model::Batch first = batch(0).microbatches[0];
    parallel::Stage& stage = run->model().stages()[0];
    at::Tensor x;
    model::Tape tape;
    for (size_t i = 0; i < stage.layers.size(); ++i) {
        x = stage.layers[i]->forward(stage.units[i].weights(), x, first, model::RecomputeMode::Full,
                                     tape = {});
    }
    const at::Tensor expected = reference_.read("logits").flatten(0, 1);
    expect_close(stage.head->logits(stage.units.back().weights(), x), expected, 1e-6, "logits");
}

TEST_P(AgainstTransformers, EveryGradient) {
    const auto run = trainer(kDouble);
    const train::StepTotals totals = run->step().forward_backward(batch(0));
    EXPECT_NEAR(totals.loss, reference_.read("loss0").item<double>(), 1e-9);
    EXPECT_EQ(run->model().parameters().size(), reference_.names("grad").size());
    for (const auto& parameter : run->model().parameters()) {
        const std::string& name = parameter->spec().name;
        expect_close(parameter->gradient().sum, reference_.read("grad/" + name), 1e-6, name);
    }
}

// The root mean square over the steps: AdamW divides by second moments near zero, so that single steps multiply
// the rounding of the steps before (step 18 of olmo3 by 10, with the kernels of CPUs without AVX-512).
TEST_P(AgainstTransformers, TwentySteps) {
    constexpr double kTolerance = 2e-6, kLr = 1e-3;
    const at::Tensor losses = reference_.read("losses"), norms = reference_.read("grad_norms");
    for (const ops::Path path : {ops::Path::Fused, ops::Path::Plain}) {
        SCOPED_TRACE(path == ops::Path::Fused ? "own kernels" : "plain operations");
        const ops::OpsContext context(path);
        const auto run = trainer(kFloat);
        const int64_t steps = tokens_.size(0);
        double loss_squares = 0, norm_squares = 0;
        for (int64_t step = 0; step < steps; ++step) {
            const auto result = run->step().update(run->step().forward_backward(batch(step)), kLr);
            loss_squares += std::pow(result.loss / losses[step].item<double>() - 1, 2);
            norm_squares += std::pow(result.grad_norm / norms[step].item<double>() - 1, 2);
        }
        EXPECT_LT(std::sqrt(loss_squares / static_cast<double>(steps)), kTolerance);
        EXPECT_LT(std::sqrt(norm_squares / static_cast<double>(steps)), kTolerance);
    }
}

TEST_P(AgainstTransformers, EightStepsInDouble) {
    const at::Tensor losses = reference_.read("losses_in_double"),
                     norms = reference_.read("grad_norms_in_double");
    const auto run = trainer(kDouble);
    for (int64_t step = 0; step < losses.size(0); ++step) {
        const auto result = run->step().update(run->step().forward_backward(batch(step)), /*lr=*/1e-3);
        EXPECT_NEAR(result.loss / losses[step].item<double>(), 1, 1e-9) << "step " << step;
        EXPECT_NEAR(result.grad_norm / norms[step].item<double>(), 1, 1e-9) << "step " << step;
    }
}

TEST(References, AreAllThere) {
    EXPECT_GE(Reference::names_of_all().size(), std::getenv("ARGOSY_REFERENCE") == nullptr ? 15 : 1);
}

INSTANTIATE_TEST_SUITE_P(Models, AgainstTransformers, ::testing::ValuesIn(Reference::names_of_all()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace argosy::testing
