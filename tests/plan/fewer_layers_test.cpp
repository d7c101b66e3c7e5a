// Rough plans of deep models, which are continued from shallow ones, against plans of all their layers.
#include "plan/fewer_layers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/ops_context.h"
#include "plan/gpus.h"

namespace argosy::plan {
namespace {

using config::RecomputeMode;

constexpr int kRanks = 64;

config::JobConfig job(const char* model, const char* flavor) {
    config::JobConfig config;
    config.model.name = model;
    config.model.flavor = flavor;
    config.training.seq_len = 4096;
    config.training.global_batch_size = 64;
    return config;
}

void expect_the_plan_of_all_layers(config::JobConfig config) {
    const Machine machine = named_gpu("h100");
    const int tensor = config.parallelism.tensor_parallel_degree,
              pipeline = config.parallelism.pipeline_parallel_degree;
    config.parallelism.data_parallel_shard_degree = kRanks / tensor / pipeline;
    config.training.local_batch_size = pipeline > 1 ? tensor * pipeline : 1;
    for (const RecomputeMode mode : {RecomputeMode::None, RecomputeMode::Selective, RecomputeMode::Full}) {
        SCOPED_TRACE(fmt::format("{}: mode {}, tp {}, pp {}", *config.model.flavor, static_cast<int>(mode),
                                 tensor, pipeline));
        config.activation_checkpoint.mode = mode;
        const Plan full = make_plan(config, kRanks, machine),
                   rough = make_rough_plan(config, kRanks, machine);
        EXPECT_NEAR(static_cast<double>(rough.peak_bytes()) / static_cast<double>(full.peak_bytes()), 1,
                    1e-3);
        EXPECT_NEAR(rough.seconds / full.seconds, 1, 0.03);
        EXPECT_DOUBLE_EQ(rough.model_flops, full.model_flops);
        const HeldBytes &held = rough.fullest().trace.peak.held, &expected = full.fullest().trace.peak.held;
        EXPECT_NEAR(static_cast<double>(held.total()) / static_cast<double>(expected.total()), 1, 1e-3);
    }
}

TEST(FewerLayers, GiveThePlanOfAll) {
    const ops::OpsContext tensors;
    config::JobConfig config = job("llama3", "405B");
    for (const int tensor : {1, 8}) {
        config.parallelism.tensor_parallel_degree = tensor;
        expect_the_plan_of_all_layers(config);
    }
    config = job("llama3", "70B");
    config.parallelism.pipeline_parallel_degree = 4;
    expect_the_plan_of_all_layers(config);
}

// In every sixth layer the window is missing.
TEST(FewerLayers, AreRemovedInWholePeriods) {
    const ops::OpsContext tensors;
    config::JobConfig config = job("gemma3", "27B");
    config.training.seq_len = 16384;
    expect_the_plan_of_all_layers(config);
    EXPECT_EQ(fewer_layers({.spec = model::preset("gemma3", "27B")}).many % 6, 0);
}

TEST(FewerLayers, AreAsManyWithExperts) {
    model::ModelSpec spec = model::preset("qwen3_moe", "30B-A3B");
    spec.experts->period = 4;
    EXPECT_EQ(fewer_layers({.spec = spec}).many, 44);
    EXPECT_EQ(fewer_layers({.spec = spec}).few, 40);
    spec.full_layer_period = 6;
    EXPECT_EQ(fewer_layers({.spec = spec}).many, 36);
    EXPECT_EQ(fewer_layers({.spec = spec}).few, 24);
    spec.experts->dense_layers = {7};
    EXPECT_FALSE(fewer_layers({.spec = spec}));
}

TEST(FewerLayers, AreNotRemovedUnderAnOptimizerThatIsNotLinear) {
    const ops::OpsContext tensors;
    config::JobConfig config = job("llama3", "8B");
    config.optimizer.name = config::OptimizerName::Muon;
    config.parallelism.data_parallel_shard_degree = 8;
    const Machine machine = named_gpu("h100");
    EXPECT_NEAR(make_rough_plan(config, 8, machine).seconds / make_plan(config, 8, machine).seconds, 1, 0.01);
}

TEST(FewerLayers, StayWhereStagesAreShallow) {
    train::TrainerOptions options{.spec = model::preset("llama3", "8B"), .stage_layers = {4, 8, 8, 12}};
    EXPECT_FALSE(fewer_layers(options));
    options.stage_layers = {12, 20};
    const FewerLayers removed = fewer_layers(options);
    EXPECT_EQ(removed.many, 9);
    EXPECT_EQ(removed.few, 8);
    remove_layers(options, removed.few);
    EXPECT_EQ(options.stage_layers, (std::vector<int>{4, 12}));
    EXPECT_EQ(options.spec.num_layers, 16);
}

}  // namespace
}  // namespace argosy::plan
