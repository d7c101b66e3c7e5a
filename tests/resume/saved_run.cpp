#include "resume/saved_run.h"

#include <gtest/gtest.h>

#include "setup/options.h"

namespace argosy::testing {

config::JobConfig saving_config(const std::filesystem::path& folder) {
    config::JobConfig config;
    config.job.dump_folder = folder.string();
    config.checkpoint.enable = true;
    config.checkpoint.interval = 1;
    config.training.seq_len = TinyRun::kSeqLen;
    config.training.steps = SavedRun::kFinalStep;
    config.training.local_batch_size = 1;
    config.training.global_batch_size = TinyRun::kGlobalBatch;
    return config;
}

SavedRun::SavedRun(const TinyRunOptions& options, const config::JobConfig& config, comm::Communicator& world)
    : config_(config),
      world_(world),
      run_(options, world),
      guard_(setup::update_guard_options(config)),
      state_(run_.trainer(), run_.mesh(), guard_, TinyRun::kSeqLen) {}

resume::Start SavedRun::restore() {
    start_ = resume::restore(config_, run_.mesh().shape(), world_, state_);
    position_ = start_.position;
    return start_;
}

resume::Checkpointer& SavedRun::checkpointer() {
    if (!checkpointer_) {
        checkpointer_.emplace(
            resume::save_options(config_, state_.spec(), run_.mesh().shape(), start_, config_.training.steps),
            world_, state_);
    }
    return *checkpointer_;
}

train::StepResult SavedRun::step() {
    checkpointer().before_step();
    const train::StepTotals totals = run_.forward_backward(position_.step);
    checkpointer().before_update();
    const train::StepResult result = run_.update(totals);
    guard_.count(result);
    position_ += {1, TinyRun::kGlobalBatch, TinyRun::kGlobalBatch * TinyRun::kSeqLen};
    checkpointer().after_step(position_);
    return result;
}

WholeState whole_state(TinyRun& run) {
    WholeState state{run.weights(), run.states()};
    const at::Tensor biases = run.trainer().model().router_biases(),
                     loads = run.trainer().step().expert_loads();
    if (biases.defined()) state.weights["biases of experts"] = biases.to(at::kDouble).clone();
    if (loads.defined()) state.states["loads of experts"] = loads.to(at::kDouble).clone();
    return state;
}

void expect_equal(const WholeState& found, const WholeState& expected) {
    const auto compare = [](const char* what, const NamedTensors& a, const NamedTensors& b) {
        EXPECT_EQ(a.size(), b.size()) << what;
        for (const auto& [name, tensor] : b) EXPECT_TRUE(a.at(name).equal(tensor)) << what << " of " << name;
    };
    compare("weights", found.weights, expected.weights);
    compare("states", found.states, expected.states);
}

}  // namespace argosy::testing
