// A step clips its gradients, and skips the update if loss or norm are not finite or too large.
#include "train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "layout/param_spec.h"
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
        const double beta1 = train::AdamWOptions().beta1;
        EXPECT_NEAR(norm_of(gradients) / unclipped.grad_norm, 1, 1e-12);

        for (const double factor : {0.3, 0.999, 1.001, 2.0, kInfinity}) {
            SCOPED_TRACE(factor);
            TinyRun run = tiny_run(layout, factor * unclipped.grad_norm);
            EXPECT_EQ(run.train(0).grad_norm, unclipped.grad_norm) << "the norm is that before clipping";
            const double scale = std::min(factor, 1.0);
            const NamedTensors states = run.states();
            for (const auto& [name, gradient] : gradients) {
                const at::Tensor& moment = states.at("first/" + name);  // the gradient that the update took
                const double difference =
                    (moment / (1 - beta1) - gradient * scale).abs().max().item<double>();
                EXPECT_LE(difference, 2e-6 * unclipped.grad_norm) << name;  // 1e-6 is added to the norm
            }
        }
    }
}

/// A step's batch in which loss masks hide every token of the job.
train::StepBatch without_counted_tokens(const TinyRun& run) {
    train::StepBatch batch = run.batch(1);
    for (model::Batch& microbatch : batch.microbatches) microbatch.targets.fill_(-1);
    batch.counted_tokens = batch.job_counted_tokens = 0;
    return batch;
}

TEST(CountedTokens, WithoutAnyInTheJobLossAndGradientsAreZero) {
    for (const Layout& layout : layouts()) {
        for (const parallel::Precision& precision : {kDouble, kMixed}) {
            SCOPED_TRACE(layout.name);
            TinyRun run = tiny_run(layout, 0.5, precision);
            run.train(0);
            train::Step& step = run.trainer().step();
            const train::StepTotals totals = step.forward_backward(without_counted_tokens(run));
            EXPECT_EQ(totals.loss, 0);
            EXPECT_EQ(totals.squared_norm, 0);
            EXPECT_EQ(norm_of(run.gradients()), 0);
            EXPECT_FALSE(step.update(totals, 1e-3).skipped);
            EXPECT_TRUE(std::isfinite(run.train(2).loss));
        }
    }
}

void expect_same_bits(const NamedTensors& found, const NamedTensors& expected) {
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;
}

/// Takes a step in which the first parameter of the last rank is NaN.
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

TEST(NonfiniteLoss, SkipsTheUpdateOnAllRanks) {
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
            // Moments and step count are unchanged too: the updates that follow are the same.
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
        const train::StepTotals totals{loss, square};
        EXPECT_TRUE(run.trainer().step().update(totals, 1e-3).skipped);
        expect_same_bits(run.weights(), before);
    }
    const train::StepResult good = run.trainer().step().update(run.forward_backward(0), 1e-3);
    EXPECT_FALSE(good.skipped);
    EXPECT_GT(largest_difference(run.weights(), before).relative, 0);
}

/// Sets gradients that are the same for every element on every layout.
void set_gradients(TinyRun& run, uint64_t seed) {
    for (const auto& parameter : run.trainer().model().parameters()) {
        layout::ParamSpec spec = parameter->spec();
        spec.init = {layout::InitKind::Normal, 0.3};
        const at::Tensor values = at::empty(parameter->slab().size, at::kFloat);
        layout::initial_values(spec, parameter->slab(), seed, values.mutable_data_ptr<float>());
        parameter->gradient().sum.zero_();
        parameter->own_rows(parameter->gradient().sum).copy_(values);
    }
}

TEST(StochasticRounding, EveryLayoutRoundsAlike) {
    const auto trained = [](const Layout& layout, comm::Communicator& ranks) {
        TinyRun run({.layout = layout,
                     .precision = {at::kBFloat16, at::kBFloat16, at::kFloat},
                     .adamw = {.moments = at::kBFloat16}},
                    ranks);
        for (int step = 0; step < 3; ++step) {
            set_gradients(run, 100 + step);
            run.trainer().step().update({}, 1e-3);
        }
        return std::pair{run.weights(), run.states()};
    };
    const auto [weights, moments] = trained({"one"}, self());
    for (const Layout& layout : layouts()) {
        SCOPED_TRACE(layout.name);
        const auto found = trained(layout, world());
        expect_same_bits(found.first, weights);
        expect_same_bits(found.second, moments);
    }
}

// A group's parameters move by its factor of the learning rate and decay by its own weight_decay; the first
// group that fits counts.
TEST(Groups, ScaleTheUpdateOfTheirParameters) {
    const auto moved = [](std::vector<train::ParameterGroup> groups) {
        TinyRunOptions options{.microbatch_size = TinyRun::kGlobalBatch, .groups = std::move(groups)};
        TinyRun run(options, self());
        const NamedTensors before = run.weights();
        run.train(0);
        NamedTensors after = run.weights();
        for (auto& [name, tensor] : after) tensor = tensor - before.at(name);
        return std::pair{after, before};
    };
    const auto [plain, start] = moved({});
    const auto [grouped, same_start] = moved({{"wq", 0.25}, {"attention", 1, 7.0}});
    for (const auto& [name, change] : plain) {
        const bool is_quarter = name.find("wq") != std::string::npos;
        const bool decays = !is_quarter && name.find("attention") != std::string::npos;
        const bool decayed = change.dim() > 1;  // by 0.1 without groups
        const at::Tensor expected =
            is_quarter ? change * 0.25
            : decays   ? change - start.at(name) * TinyRunOptions().lr * (decayed ? 6.9 : 7.0)
                       : change;
        EXPECT_TRUE(grouped.at(name).allclose(expected, 1e-9, 1e-14)) << name;
    }
}

TEST(UpdateLimits, BeyondThemTheUpdateIsSkipped) {
    for (const Layout& layout : layouts()) {
        SCOPED_TRACE(layout.name);
        TinyRun plain = tiny_run(layout, 0.5), limited = tiny_run(layout, 0.5);
        plain.train(0);
        const train::StepResult first = limited.train(0);
        const NamedTensors before = limited.weights();
        const train::StepTotals totals = limited.forward_backward(0);
        const double loss = totals.loss, norm = std::sqrt(totals.squared_norm);
        for (const train::UpdateLimits& limits :
             {train::UpdateLimits{.loss = loss * 0.999}, {.grad_norm = norm * 0.999}}) {
            limited.forward_backward(0);
            const train::StepResult result = limited.trainer().step().update(totals, 1e-3, limits);
            EXPECT_TRUE(result.skipped);
            EXPECT_EQ(result.loss, loss);
            expect_same_bits(limited.weights(), before);
        }
        plain.train(1);
        const train::UpdateLimits wide{.loss = first.loss * 2, .grad_norm = first.grad_norm * 9};
        const train::StepTotals next = limited.forward_backward(1);
        EXPECT_FALSE(limited.trainer().step().update(next, 1e-3, wide).skipped);
        expect_same_bits(limited.weights(), plain.weights());
    }
}

}  // namespace
}  // namespace argosy::testing
