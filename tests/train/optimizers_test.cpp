// Optimizers that need whole matrices, beside AdamW: Muon, and one of the tests. Every layout trains as one
// rank does.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/communicator_double.h"
#include "support/world.h"
#include "train/muon.h"
#include "train/shared_muon.h"
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
    bool shares = false;  // tensor ranks share matrices
};

std::vector<Kind> kinds() {
    using enum train::MuonOptions::AdjustLr;
    return {{"own", {.lr = 0.1, .optimizers = {whole_norm()}}},
            {"muon", {.lr = 0.01, .optimizers = {train::muon({})}}},
            {"qk_clip", {.lr = 0.01, .optimizers = {train::muon({})}, .qk_clip = 0.1}},
            {"muon_by_head",
             {.family = "qwen3",
              .lr = 0.01,
              .optimizers = {train::muon({.nesterov = false, .adjust_lr = Original, .by_head = true})}}},
            {"muon_shared",
             {.lr = 0.01, .optimizers = {shared_muon()}, .spec = widened("llama3", /*dim=*/15)},
             /*shares=*/true}};
}

/// The layouts of these ranks; with `shares` those with tensor ranks.
std::vector<Layout> layouts(bool shares) {
    std::vector<Layout> layouts = every_layout(world().size());
    if (shares) std::erase_if(layouts, [](const Layout& layout) { return layout.mesh.tensor == 1; });
    return layouts;
}

/// Counts the operations by which ranks share the products of a matrix.
struct CountsShared {
    int* count;
    comm::Pending operator()(comm::Communicator& group, std::span<const comm::Op> ops) const {
        if (ops[0].purpose.work == std::string("Newton-Schulz")) ++*count;
        return group.submit(ops);
    }
};

/// COLLECTIVE: whether any rank says so. A pipeline stage may have no matrices.
bool any_rank(bool own) {
    const at::Tensor number = at::full({1}, own ? 1 : 0, at::kLong);
    world().run({.kind = comm::OpKind::AllReduce, .out = number, .in = number});
    return number.item<int64_t>() > 0;
}

void expect_same(const std::optional<train::Scores>& found, const std::optional<train::Scores>& expected) {
    ASSERT_EQ(found.has_value(), expected.has_value());
    if (!found) return;
    EXPECT_NEAR(found->largest / expected->largest, 1, kTolerance);
    EXPECT_EQ(found->num_too_large, expected->num_too_large);
    EXPECT_GT(found->num_too_large, 0);
}

class Optimizers : public ::testing::TestWithParam<Kind> {};

TEST_P(Optimizers, TrainOnEveryLayoutAsOnOneRank) {
    const auto& [name, options, shares] = GetParam();
    TinyRunOptions alone = options;
    alone.microbatch_size = TinyRun::kGlobalBatch;
    const Trained one = trained(alone, self());
    const auto is_used = [&](const char* state) { return one.states.at(state).ne(0).any().item<bool>(); };
    EXPECT_TRUE(is_used("momentum/layers.4.feed_forward.w2.weight"));
    EXPECT_FALSE(is_used("second/layers.4.feed_forward.w2.weight"));
    EXPECT_TRUE(is_used("second/tok_embeddings.weight")) << "AdamW takes what is left";
    EXPECT_FALSE(is_used("momentum/tok_embeddings.weight"));
    for (const Layout& layout : layouts(shares)) {
        SCOPED_TRACE(layout.name);
        TinyRunOptions on_layout = options;
        on_layout.layout = layout;
        int num_shared = 0;
        CommunicatorDouble ranks(world(), CountsShared{&num_shared});
        const Trained found = trained(on_layout, ranks);
        EXPECT_EQ(any_rank(num_shared > 0), shares);
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
void expect_the_error_of_one_rank(TinyRunOptions options, bool shares) {
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
    for (const Layout& layout : layouts(shares)) {
        SCOPED_TRACE(layout.name);
        EXPECT_NEAR(mean_square(weights(layout, world()), exact) / error, 1, 0.1);
    }
}

TEST(MuonInBFloat16, IsAsExactOnEveryLayoutAsOnOneRank) {
    expect_the_error_of_one_rank({.lr = 0.01, .optimizers = {train::muon({})}}, /*shares=*/false);
}

TEST(MuonInBFloat16, IsAsExactWhereTensorRanksShareMatrices) {
    expect_the_error_of_one_rank(
        {.lr = 0.01, .optimizers = {shared_muon()}, .spec = widened("llama3", /*dim=*/35)}, /*shares=*/true);
}

}  // namespace
}  // namespace argosy::testing
