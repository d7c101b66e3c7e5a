// An optimizer of the tests, which communicates and keeps one state, beside AdamW: every layout trains as one
// rank does.
#include <gtest/gtest.h>

#include "support/world.h"
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

Trained trained(TinyRunOptions options, comm::Communicator& ranks) {
    options.optimizers = {whole_norm()};
    options.lr = 0.1;
    TinyRun run(options, ranks);
    Trained result;
    for (int step = 0; step < kNumSteps; ++step) result.steps.push_back(run.train(step));
    result.weights = run.weights();
    result.states = run.states();
    return result;
}

TEST(Optimizers, OfOnesOwnTrainOnEveryLayout) {
    const Trained one = trained({.microbatch_size = TinyRun::kGlobalBatch}, self());
    const auto is_used = [&](const char* state) { return one.states.at(state).ne(0).any().item<bool>(); };
    EXPECT_TRUE(is_used("momentum/layers.4.feed_forward.w2.weight"));
    EXPECT_FALSE(is_used("second/layers.4.feed_forward.w2.weight"));
    EXPECT_TRUE(is_used("second/output.weight")) << "AdamW takes what is left";
    EXPECT_FALSE(is_used("momentum/output.weight"));
    for (const Layout& layout : every_layout(world().size())) {
        SCOPED_TRACE(layout.name);
        const Trained found = trained({.layout = layout}, world());
        for (int step = 0; step < kNumSteps; ++step) {
            EXPECT_NEAR(found.steps[step].loss / one.steps[step].loss, 1, kTolerance);
            EXPECT_NEAR(found.steps[step].grad_norm / one.steps[step].grad_norm, 1, kTolerance);
        }
        EXPECT_LE(largest_difference(found.weights, one.weights).relative, kTolerance);
        EXPECT_LE(largest_difference(found.states, one.states).relative, kTolerance);
    }
}

}  // namespace
}  // namespace argosy::testing
