// On the same mesh a resumed run repeats the uninterrupted one bit for bit, in every number type, and twice
// in a row.
#include <gtest/gtest.h>

#include "resume/saved_run.h"
#include "scratch_folder.h"
#include "support/shared_folder.h"
#include "support/world.h"

namespace argosy::testing {
namespace {

using parallel::Precision;

struct NumberTypes {
    std::string name;
    Precision precision;
    train::AdamWOptions adamw = {};
};

void PrintTo(const NumberTypes& types, std::ostream* out) { *out << types.name; }

std::vector<NumberTypes> number_types() {
    const train::AdamWOptions small_states{.moments = at::kBFloat16};
    return {{"float32", {at::kFloat, at::kFloat, at::kFloat}},
            {"bfloat16_mixed", {at::kFloat, at::kBFloat16, at::kFloat}},
            {"bfloat16", {at::kBFloat16, at::kBFloat16, at::kFloat}, small_states},
            {"float32_small_states", {at::kFloat, at::kBFloat16, at::kFloat}, small_states},
            {"bfloat16_gradients", {at::kFloat, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true}},
            {"float64", {at::kDouble, at::kDouble, at::kDouble}}};
}

class Resume : public ::testing::TestWithParam<NumberTypes> {
  protected:
    TinyRunOptions options() const {
        const int ranks = world().size();
        Layout layout{"one"};
        if (ranks == 2) layout = {"fsdp2", {.shard = 2}};
        if (ranks == 4) layout = {"tp2_pp2", {.pipeline = 2, .tensor = 2}, {2, 3}};
        return {.family = "qwen2",  // tied: on two stages of a pipeline
                .layout = layout,
                .precision = GetParam().precision,
                .adamw = GetParam().adamw};
    }
};

struct Taken {
    std::vector<double> losses, norms;
    std::vector<bool> skipped;
    bool operator==(const Taken&) const = default;
};

void take(SavedRun& run, int num_steps, Taken& taken) {
    for (int i = 0; i < num_steps; ++i) {
        const train::StepResult result = run.step();
        taken.losses.push_back(result.loss);
        taken.norms.push_back(result.finite() ? result.grad_norm : -1);
        taken.skipped.push_back(result.skipped);
    }
}

TEST_P(Resume, RepeatsTheUninterruptedRun) {
    const SharedFolder folder(world());
    config::JobConfig config = saving_config(folder / "whole");
    config.checkpoint.interval = 100;
    config.loss_spike = {.loss_zscore = 100, .window = 5, .warmup_steps = 2};  // remembers, and never skips
    Taken whole, parts;
    SavedRun uninterrupted(options(), config, world());
    take(uninterrupted, 12, whole);

    config.job.dump_folder = (folder / "parts").string();
    for (int part = 0; part < 3; ++part) {
        SavedRun run(options(), config, world());
        EXPECT_EQ(run.restore().resumed, part > 0);
        EXPECT_EQ(run.position().step, 4 * part);
        take(run, 4, parts);
        run.finish();
        if (part == 2) {
            expect_equal(whole_state(run.run()), whole_state(uninterrupted.run()));
            EXPECT_EQ(run.state().scalars(run.position()),
                      uninterrupted.state().scalars(uninterrupted.position()));
        }
    }
    EXPECT_EQ(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(NumberTypes, Resume, ::testing::ValuesIn(number_types()),
                         [](const auto& types) { return types.param.name; });

/// Loading converts what is held in another type now.
TEST(ResumeInAnotherType, WidensExactlyAndRoundsToTheNearest) {
    const SharedFolder folder(world());
    const config::JobConfig config = saving_config(folder / "run");
    TinyRunOptions wide{.layout = {"ddp", {.replicate = world().size()}},
                        .precision = {at::kFloat, at::kFloat, at::kFloat}};
    SavedRun saved(wide, config, world());
    for (int i = 0; i < 2; ++i) saved.step();
    saved.finish();
    const WholeState before = whole_state(saved.run());

    TinyRunOptions narrow = wide;
    narrow.precision = {at::kBFloat16, at::kBFloat16, at::kFloat};
    narrow.adamw.moments = at::kBFloat16;
    SavedRun rounded(narrow, config, world());
    rounded.restore();
    const WholeState after = whole_state(rounded.run());
    for (const auto& [name, tensor] : before.weights) {
        EXPECT_TRUE(after.weights.at(name).equal(tensor.to(at::kBFloat16).to(at::kDouble))) << name;
    }
    for (const auto& [name, tensor] : before.states) {
        EXPECT_TRUE(after.states.at(name).equal(tensor.to(at::kBFloat16).to(at::kDouble))) << name;
    }

    config::JobConfig narrow_config = config;
    narrow_config.checkpoint.folder = "narrow";
    SavedRun narrow_saved(narrow, narrow_config, world());
    narrow_saved.step();
    narrow_saved.finish();
    SavedRun widened(wide, narrow_config, world());
    widened.restore();
    expect_equal(whole_state(widened.run()), whole_state(narrow_saved.run()));
}

}  // namespace
}  // namespace argosy::testing
