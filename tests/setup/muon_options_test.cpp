// The keys of Muon reach it: an update by the configuration's optimizer is that of Muon with these options.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "comm/mesh.h"
#include "setup/options.h"
#include "support/tensors.h"
#include "support/world.h"
#include "train/muon.h"

namespace argosy::setup {
namespace {

using train::MuonOptions;

/// A matrix of three heads after two updates.
at::Tensor updated(const train::OptimizerChoice& choice) {
    testing::RandomTensors random(9);
    comm::Mesh mesh({}, testing::self());
    const layout::ParamSpec spec{.name = "w", .shape = {12, 8}, .num_heads = 3};
    const at::Tensor weights = random.normal({12, 8}, at::kFloat),
                     gradient = random.normal({12, 8}, at::kFloat);
    const auto optimizer = choice.make({{.name = spec.name,
                                         .rows = {.length = weights.numel()},
                                         .weights = weights,
                                         .compute = weights,
                                         .gradient = gradient,
                                         .spec = &spec}},
                                       mesh);
    for (int64_t number : {1, 2}) {
        optimizer->update({number, 0.1, 1});
        gradient.copy_(random.normal({12, 8}, at::kFloat));
    }
    return weights;
}

TEST(MuonOptions, AreTheKeysOfTheConfiguration) {
    const c10::InferenceMode guard;
    config::JobConfig config;
    config.debug.seed = 5;
    config.optimizer.name = config::OptimizerName::Muon;
    MuonOptions options{.seed = 5};
    at::Tensor before;
    const auto expect_same = [&](const char* key) {
        const auto choices = trainer_options(config, choose_model(config.model), {}).step.optimizers;
        ASSERT_EQ(choices.size(), 1);
        const at::Tensor weights = updated(choices[0]);
        EXPECT_TRUE(testing::identical(weights, updated(train::muon(options)))) << key;
        EXPECT_TRUE(!before.defined() || !weights.equal(before)) << key << " changes nothing";
        before = weights;
    };
    expect_same("name");
    config.optimizer.muon_momentum = options.momentum = 0.7;
    expect_same("muon_momentum");
    config.optimizer.muon_nesterov = options.nesterov = false;
    expect_same("muon_nesterov");
    config.optimizer.muon_ns_steps = options.ns_steps = 4;
    expect_same("muon_ns_steps");
    config.optimizer.muon_adjust_lr = config::MuonAdjustLr::Original;
    options.adjust_lr = MuonOptions::AdjustLr::Original;
    expect_same("muon_adjust_lr");
    config.optimizer.muon_adjust_lr = config::MuonAdjustLr::Spectral;
    options.adjust_lr = MuonOptions::AdjustLr::Spectral;
    expect_same("muon_adjust_lr");
    config.optimizer.muon_ns_dtype = config::Precision::Float32;
    options.ns_dtype = at::kFloat;
    expect_same("muon_ns_dtype");
    config.optimizer.muon_split = config::MuonSplit::Head;
    options.by_head = true;
    expect_same("muon_split");
    config.optimizer.state_dtype = config::Precision::BFloat16;
    options.state = at::kBFloat16;
    expect_same("state_dtype");
    config.debug.seed = 6;
    options.seed = 6;
    expect_same("seed");
}

TEST(MuonOptions, TakesRoutersUnlessTold) {
    const layout::ParamSpec router{.kind = layout::ParameterKind::Router};
    config::JobConfig config;
    config.optimizer.name = config::OptimizerName::Muon;
    for (const bool takes : {true, false}) {
        config.optimizer.muon_routers = takes;
        const auto choices = trainer_options(config, choose_model(config.model), {}).step.optimizers;
        EXPECT_EQ(choices.at(0).takes(router), takes);
    }
}

}  // namespace
}  // namespace argosy::setup
