// What a step does with its gradients besides computing them: clipping, and leaving a bad update out.
#include "train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

constexpr parallel::Precision kDouble{at::kDouble, at::kDouble, at::kDouble};
constexpr parallel::Precision kMixed{at::kFloat, at::kBFloat16, at::kFloat};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<Layout> layouts() {
    switch (world().size()) {
        case 1:
            return {{"one"}};
        case 2:
            return {{"fsdp2", {.shard = 2}}, {"tp2", {.tensor = 2}}, {"pp2", {.pipeline = 2}, {3, 2}}};
        default:
            return {{"hsdp2x2", {.replicate = 2, .shard = 2}},
                    {"tp2_pp2", {.pipeline = 2, .tensor = 2}, {2, 3}}};
    }
}

double norm_of(const NamedTensors& tensors) {
    double square = 0;
    for (const auto& [name, tensor] : tensors) square += tensor.square().sum().item<double>();
    return std::sqrt(square);
}

TinyRun tiny_run(const Layout& layout, double max_norm, const parallel::Precision& precision = kDouble) {
    return TinyRun({.layout = layout, .precision = precision, .max_norm = max_norm}, world());
}

TEST(Clipping, LargeGradientsAreScaledToTheLimitAndSmallOnesLeft) {
    for (const Layout& layout : layouts()) {
        SCOPED_TRACE(layout.name);
        TinyRun whole = tiny_run(layout, /*max_norm=*/kInfinity);
        const train::StepResult unclipped = whole.train(0);
        const NamedTensors gradients = whole.gradients();
        EXPECT_NEAR(norm_of(gradients) / unclipped.grad_norm, 1, 1e-12);

        for (const double factor : {0.3, 0.999, 1.001, 2.0, kInfinity}) {
            SCOPED_TRACE(factor);
            TinyRun run = tiny_run(layout, factor * unclipped.grad_norm);
            EXPECT_EQ(run.train(0).grad_norm, unclipped.grad_norm) << "the norm is that before clipping";
            const double scale = std::min(factor, 1.0);
            for (const auto& [name, gradient] : run.gradients()) {
                const double difference = (gradient - gradients.at(name) * scale).abs().max().item<double>();
                EXPECT_LE(difference, 2e-6 * unclipped.grad_norm) << name;  // 1e-6 is added to the norm
            }
        }
    }
}

void expect_same_bits(const NamedTensors& found, const NamedTensors& expected) {
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;
}

/// A step in which one rank's first parameter is not a number.
train::StepResult poisoned_step(TinyRun& run) {
    parallel::ShardedParameter& parameter = *run.trainer().model().parameters()[0];
    const bool here = world().rank() == world().size() - 1;
    const at::Tensor before = parameter.master().clone();
    if (here) parameter.own_rows(parameter.master()).fill_(std::nan(""));
    parameter.refresh_compute();
    const train::StepResult result = run.train(1);
    EXPECT_EQ(parameter.own_rows(parameter.master()).isnan().all().item<bool>(), here);
    parameter.master().copy_(before);
    parameter.refresh_compute();
    return result;
}

TEST(NonfiniteLoss, LeavesTheUpdateOutOnAllRanks) {
    for (const Layout& layout : layouts()) {
        for (const parallel::Precision& precision : {kDouble, kMixed}) {
            SCOPED_TRACE(layout.name);
            TinyRun plain = tiny_run(layout, 0.5, precision), poisoned = tiny_run(layout, 0.5, precision);
            plain.train(0);
            poisoned.train(0);
            const NamedTensors before = poisoned.weights();
            const train::StepResult result = poisoned_step(poisoned);
            EXPECT_TRUE(result.skipped);
            EXPECT_TRUE(std::isnan(result.loss));
            expect_same_bits(poisoned.weights(), before);
            // Moments and step count show in the updates that follow.
            for (const int step : {1, 2}) {
                EXPECT_FALSE(plain.train(step).skipped);
                EXPECT_FALSE(poisoned.train(step).skipped);
                expect_same_bits(poisoned.weights(), plain.weights());
            }
        }
    }
}

TEST(NonfiniteLoss, EitherTotalIsEnough) {
    TinyRun run = tiny_run(layouts()[0], 0.5);
    const NamedTensors before = run.weights();
    for (const auto& [loss, square] :
         {std::pair{1.0, kInfinity}, {kInfinity, 1.0}, {1.0, std::nan("")}, {std::nan(""), 1.0}}) {
        run.forward_backward(0);
        const at::Tensor totals = at::tensor({loss, square}, at::kDouble);
        EXPECT_TRUE(run.trainer().step().update(totals, 1e-3).skipped);
        expect_same_bits(run.weights(), before);
    }
    const train::StepResult good = run.trainer().step().update(run.forward_backward(0), 1e-3);
    EXPECT_FALSE(good.skipped);
    EXPECT_GT(largest_difference(run.weights(), before).relative, 0);
}

}  // namespace
}  // namespace argosy::testing
