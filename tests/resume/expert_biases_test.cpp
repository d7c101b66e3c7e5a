// Biases of experts in saves: their type, loads that a save lacks, and exports that have no place for them.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/step_folder.h"
#include "expect_error.h"
#include "resume/saved_run.h"
#include "scratch_folder.h"
#include "support/world.h"

namespace argosy::testing {
namespace {

TinyRunOptions sparse(const train::BalanceOptions& balance = {}) {
    TinyRunOptions options{.balance = balance};
    options.precision = {at::kFloat, at::kFloat, at::kFloat};
    options.spec = tiny_spec("qwen3");
    options.spec->name = "qwen3_moe";
    options.spec->experts = {.router = {.num_experts = 6, .top_k = 2}, .hidden_dim = 9, .period = 2};
    return options;
}

void save(const TinyRunOptions& options, const config::JobConfig& config) {
    SavedRun run(options, config, self());
    run.restore();
    run.step();
    run.finish();
}

TEST(ExpertBiases, KeepTheirTypeInASaveOfWeightsInBFloat16) {
    const ScratchFolder folder;
    config::JobConfig config = saving_config(folder / "run");
    config.training.steps = 1;
    config.checkpoint.last_save_model_only = true;
    config.checkpoint.export_dtype = config::Precision::BFloat16;
    save(sparse({.bias_update_rate = 0.1}), config);
    const checkpoint::Checkpoint saved(checkpoint::step_path(folder / "run" / "checkpoint", 1));
    EXPECT_EQ(saved.at("model/layers.1.moe.router.weight").type, ElementType::BFloat16);
    EXPECT_EQ(saved.at("model/layers.1.moe.router.bias").type, ElementType::Float32);
}

TEST(ExpertBiases, LoadsThatASaveLacksAreEven) {
    const ScratchFolder folder;
    const config::JobConfig config = saving_config(folder / "run");
    save(sparse({.bias_update_rate = 0.1}), config);
    SavedRun resumed(sparse({.step_loss = 1}), config, self());
    resumed.run().trainer().step().expert_loads().fill_(7);
    resumed.restore();
    EXPECT_TRUE(resumed.run().trainer().step().expert_loads()[1].eq(1).all().item<bool>());
    EXPECT_TRUE(resumed.state().weights().has_router_biases()) << "they stay without a rate";
}

TEST(ExpertBiases, AnExportThatHasNoPlaceForThemIsRefusedAtTheStart) {
    const ScratchFolder folder;
    config::JobConfig config = saving_config(folder / "run");
    config.checkpoint.last_save_in_hf = true;
    SavedRun run(sparse(), config, self());
    run.run().trainer().model().router_biases().fill_(0.5);
    EXPECT_ERROR(run.checkpointer(), UserError, "the run has loaded biases of experts, and qwen3_moe has no place");
}

}  // namespace
}  // namespace argosy::testing
