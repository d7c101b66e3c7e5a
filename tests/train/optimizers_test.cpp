// Optimizers that need whole matrices, beside AdamW: Muon, and one of the tests. Every layout trains as one
// rank does.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/world.h"
#include "train/muon.h"
#include "train/tiny_run.h"
#include "train/whole_norm.h"

namespace argosy::testing {
namespace {

constexpr int kNumSteps = 4;
constexpr double kTolerance = 1e-9;

struct Trained {
    std::vector<train::StepResult> steps;
    NamedTensors weights, states;
};

Trained trained(const TinyRunOptions& options, comm::Communicator& ranks) {
    TinyRun run(options, ranks);
    Trained result;
    for (int step = 0; step < kNumSteps; ++step) result.steps.push_back(run.train(step));
    result.weights = run.weights();
    result.states = run.states();
    return result;
}

struct Kind {
    std::string name;
    TinyRunOptions options;
};

std::vector<Kind> kinds() {
    using enum train::MuonOptions::AdjustLr;
    return {{"own", {.lr = 0.1, .optimizers = {whole_norm()}}},
            {"muon", {.lr = 0.01, .optimizers = {train::muon({})}}},
            {"qk_clip", {.lr = 0.01, .optimizers = {train::muon({})}, .qk_clip = 2.495}},
            {"muon_by_head",
             {.family = "qwen3",
              .lr = 0.01,
              .optimizers = {train::muon({.nesterov = false, .adjust_lr = Original, .by_head = true})}}}};
}

void expect_same(const std::optional<train::Scores>& found, const std::optional<train::Scores>& expected) {
    ASSERT_EQ(found.has_value(), expected.has_value());
    if (!found) return;
    EXPECT_NEAR(found->bound / expected->bound, 1, kTolerance);
    EXPECT_EQ(found->num_too_large, expected->num_too_large);
    EXPECT_GT(found->num_too_large, 0);
}

class Optimizers : public ::testing::TestWithParam<Kind> {};

TEST_P(Optimizers, TrainOnEveryLayoutAsOnOneRank) {
    const auto& [name, options] = GetParam();
    TinyRunOptions alone = options;
    alone.microbatch_size = TinyRun::kGlobalBatch;
    const Trained one = trained(alone, self());
    const auto is_used = [&](const char* state) { return one.states.at(state).ne(0).any().item<bool>(); };
    EXPECT_TRUE(is_used("momentum/layers.4.feed_forward.w2.weight"));
    EXPECT_FALSE(is_used("second/layers.4.feed_forward.w2.weight"));
    EXPECT_TRUE(is_used("second/tok_embeddings.weight")) << "AdamW takes what is left";
    EXPECT_FALSE(is_used("momentum/tok_embeddings.weight"));
    for (const Layout& layout : every_layout(world().size())) {
        SCOPED_TRACE(layout.name);
        TinyRunOptions on_layout = options;
        on_layout.layout = layout;
        const Trained found = trained(on_layout, world());
        for (int step = 0; step < kNumSteps; ++step) {
            EXPECT_NEAR(found.steps[step].loss / one.steps[step].loss, 1, kTolerance);
            EXPECT_NEAR(found.steps[step].grad_norm / one.steps[step].grad_norm, 1, kTolerance);
            expect_same(found.steps[step].scores, one.steps[step].scores);
        }
        EXPECT_LE(largest_difference(found.weights, one.weights).relative, kTolerance);
        EXPECT_LE(largest_difference(found.states, one.states).relative, kTolerance);
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Optimizers, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

/// The mean square by which the weights of the runs differ.
double mean_square(const NamedTensors& found, const NamedTensors& expected) {
    double sum = 0, count = 0;
    for (const auto& [name, weights] : expected) {
        sum += (found.at(name) - weights).square().sum().item<double>();
        count += static_cast<double>(weights.numel());
    }
    return sum / count;
}

// Newton-Schulz steps in bf16 multiply the rounding of directions in which a matrix is small, so weights of
// two layouts may differ by much. Their error against fp64 is the same.
TEST(MuonInBFloat16, IsAsExactOnEveryLayoutAsOnOneRank) {
    TinyRunOptions options{.lr = 0.01, .optimizers = {train::muon({})}};
    const auto weights = [&](const Layout& layout, comm::Communicator& ranks) {
        options.layout = layout;
        TinyRun run(options, ranks);
        run.train(0);
        return run.weights();
    };
    const NamedTensors exact = weights({}, self());
    options.precision = {at::kFloat, at::kFloat, at::kFloat};
    const double error = mean_square(weights({}, self()), exact);
    EXPECT_GT(error, 0);
    for (const Layout& layout : every_layout(world().size())) {
        SCOPED_TRACE(layout.name);
        EXPECT_NEAR(mean_square(weights(layout, world()), exact) / error, 1, 0.1);
    }
}

}  // namespace
}  // namespace argosy::testing
