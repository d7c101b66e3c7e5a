// The balancing of experts on one rank: losses of even loads, the rule of the biases against a plain loop,
// and what is counted. balance_gradients_test.cpp compares losses and gradients with autograd,
// random_layouts_test.cpp meshes with one rank.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/tensors.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using model::RecomputeMode;

constexpr int64_t kExperts = 6, kTopK = 2;
constexpr int64_t kTokens = TinyRun::kGlobalBatch * TinyRun::kSeqLen;

/// Experts in layers 1 and 3 of five.
TinyRunOptions sparse(const train::BalanceOptions& balance) {
    TinyRunOptions options{.microbatch_size = 2, .balance = balance};
    options.spec = tiny_spec("qwen3");
    options.spec->experts = {
        .router = {.num_experts = kExperts, .top_k = kTopK}, .hidden_dim = 9, .period = 2};
    return options;
}

// With even loads, each layer's losses are their coefficients.
TEST(ExpertBalance, LossesOfEvenLoadsAreTheirCoefficients) {
    TinyRun run(sparse({.sequence_loss = 0.5, .step_loss = 0.25, .force_balance = true}), self());
    const train::StepTotals totals = run.forward_backward(0);
    const model::ExpertFigures figures = run.update(totals).experts.value();
    EXPECT_NEAR(figures.sequence_loss.value(), 2 * 0.5, 1e-12);
    EXPECT_NEAR(figures.step_loss.value(), 2 * 0.25, 1e-12);
    EXPECT_FALSE(figures.z_loss);
    EXPECT_TRUE(figures.forced_balance);
    EXPECT_EQ(figures.layers, (std::vector<int64_t>{1, 3}));
    for (const auto& counts : figures.counts)
        EXPECT_EQ(counts, std::vector<int64_t>(kExperts, kTokens * kTopK / kExperts));
    for (const double entropy : figures.entropy) {
        EXPECT_GT(entropy, 0);
        EXPECT_LE(entropy, std::log(kExperts));
    }
}

TEST(ExpertBalance, BiasesFollowTheRule) {
    constexpr double kRate = 0.003;
    TinyRun run(sparse({.bias_update_rate = kRate}), self());
    const at::Tensor& biases = run.trainer().model().router_biases();
    at::Tensor expected = at::zeros(biases.sizes(), at::kDouble);
    for (int64_t step = 0; step < 6; ++step) {
        const model::ExpertFigures figures = run.train(step).experts.value();
        for (size_t i = 0; i < figures.layers.size(); ++i) {
            for (int64_t expert = 0; expert < kExperts; ++expert) {
                const int64_t below = kTokens * kTopK - figures.counts[i][expert] * kExperts;
                expected[figures.layers[i]][expert] += below > 0 ? kRate : below < 0 ? -kRate : 0;
            }
            EXPECT_EQ(figures.bias_min[i], biases[figures.layers[i]].min().item<double>());
            EXPECT_EQ(figures.bias_max[i], biases[figures.layers[i]].max().item<double>());
        }
        EXPECT_TRUE(close(biases, expected, 1e-15));
    }
    EXPECT_GT(expected.abs().max().item<double>(), kRate);
}

TEST(ExpertBalance, BiasesDecideTheChoiceButNotTheWeights) {
    TinyRun run(sparse({.bias_update_rate = 1}), self());
    run.trainer().model().router_biases().select(1, 4).fill_(10);
    const model::ExpertFigures figures = run.update(run.forward_backward(0)).experts.value();
    for (const auto& counts : figures.counts) EXPECT_EQ(counts[4], kTokens);
    for (const double ratio : figures.load_max_over_mean()) EXPECT_DOUBLE_EQ(ratio, kExperts / double{kTopK});
    EXPECT_EQ(run.trainer().model().router_biases()[1][4].item<double>(), 9);
}

TEST(ExpertBalance, ASkippedUpdateLeavesBiasesAndLoads) {
    TinyRun run(sparse({.bias_update_rate = 0.1, .step_loss = 0.1}), self());
    run.train(0);
    const at::Tensor biases = run.trainer().model().router_biases().clone(),
                     loads = run.trainer().step().expert_loads().clone();
    const train::StepTotals totals = run.forward_backward(1);
    EXPECT_TRUE(run.trainer().step().update(totals, /*lr=*/0, {.loss = 0}).skipped);
    EXPECT_TRUE(identical(run.trainer().model().router_biases(), biases));
    EXPECT_TRUE(identical(run.trainer().step().expert_loads(), loads));
    EXPECT_FALSE(run.update(totals).skipped);
    EXPECT_FALSE(identical(run.trainer().model().router_biases(), biases));
    EXPECT_FALSE(identical(run.trainer().step().expert_loads(), loads));
    EXPECT_NEAR(run.trainer().step().expert_loads()[3].mean().item<double>(), 1, 1e-15);
}

TEST(ExpertBalance, EachTokenCountsOnce) {
    TinyRunOptions options = sparse({.sequence_loss = 1, .step_loss = 1, .z_loss = 1});
    TinyRun kept(options, self());
    const at::Tensor expected = kept.forward_backward(0).expert_sums;
    EXPECT_EQ(expected[1].narrow(0, 0, kExperts).sum().item<double>(), kTokens * kTopK);
    EXPECT_EQ(expected[0].abs().max().item<double>(), 0);  // a layer without experts
    for (const auto mode : {RecomputeMode::Selective, RecomputeMode::Full}) {
        options.recompute = mode;
        TinyRun run(options, self());
        EXPECT_TRUE(identical(run.forward_backward(0).expert_sums, expected));
        EXPECT_EQ(largest_difference(run.gradients(), kept.gradients()).relative, 0);
    }
}

}  // namespace
}  // namespace argosy::testing
