// The facts that explain a run's speed, from its configuration.
#include <gtest/gtest.h>

#include <ctime>

#include "parallel/schedule.h"
#include "setup/options.h"

namespace argosy::setup {
namespace {

using config::JobConfig;

/// A run of 4 layers with `num_microbatches` on two ranks with stages.
observe::RunFacts pipeline_facts_of(const std::string& schedule, int64_t num_microbatches,
                                    int64_t num_layers = 4, int num_ranks = 2) {
    JobConfig config;
    config.training.local_batch_size = num_microbatches;
    config.parallelism.pipeline_parallel_degree = num_ranks;
    const layout::MeshShape mesh{{num_ranks, 1, 1, 1, 1}};
    model::ModelSpec spec = model::preset("llama3", "debugmodel");
    spec.num_layers = num_layers;
    train::TrainerOptions options = trainer_options(config, spec, mesh);
    options.schedule = schedule;
    options.stage_layers.assign(num_ranks * parallel::default_stages_per_rank(schedule), 1);
    return run_facts(config, options, mesh, {"a setting"});
}

// Bubbles of stages of equal length, by the formulas of the schedules' papers: (p - 1) / (m + p - 1) for 1F1B
// and GPipe with p stages and m microbatches, (p - 1) / (v m + p - 1) with v stages on each rank.
TEST(RunFacts, TheBubbleOfAPipeline) {
    const auto two = *pipeline_facts_of("1F1B", 4).pipeline;
    EXPECT_EQ(two.schedule, "1F1B");
    EXPECT_EQ(two.num_microbatches, 4);
    EXPECT_NEAR(two.bubble, 1.0 / 5, 1e-12);
    EXPECT_NEAR(*two.bubble_of_twice, 1.0 / 9, 1e-12);
    EXPECT_NEAR(pipeline_facts_of("GPipe", 8).pipeline->bubble, 1.0 / 9, 1e-12);
    EXPECT_NEAR(pipeline_facts_of("Interleaved1F1B", 4).pipeline->bubble, 1.0 / 9, 1e-12);
}

TEST(RunFacts, TheBubbleOfManyMicrobatchesIsThatOfAllOfThem) {
    for (const int64_t m : {16, 64, 100, 1024}) {
        const auto bubble = [&](const char* schedule) {
            return pipeline_facts_of(schedule, m).pipeline->bubble;
        };
        EXPECT_NEAR(bubble("1F1B"), 1.0 / static_cast<double>(m + 1), 1e-9) << m;
        EXPECT_NEAR(bubble("GPipe"), 1.0 / static_cast<double>(m + 1), 1e-9) << m;
        EXPECT_NEAR(bubble("Interleaved1F1B"), 1.0 / static_cast<double>(2 * m + 1), 1e-9) << m;
        EXPECT_NEAR(bubble("InterleavedZeroBubble"), 1.0 / static_cast<double>(6 * m + 1), 1e-9) << m;
        EXPECT_NEAR(bubble("ZBVZeroBubble"), 1.0 / static_cast<double>(6 * m + 1), 1e-9) << m;
    }
}

TEST(RunFacts, OfAVeryLongPipelineTakeLittleTime) {
    const std::clock_t start = std::clock();
    const auto facts = *pipeline_facts_of("1F1B", 1024, /*num_layers=*/128, /*num_ranks=*/64).pipeline;
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_NEAR(facts.bubble, 63.0 / (1024 + 63), 1e-9);
    EXPECT_LT(seconds, 5) << "0.4 s on a processor of 2023";
}

TEST(RunFacts, TheBestScheduleIsRecommendedIfTheModelHasItsStages) {
    // On two ranks both zero-bubble schedules wait for p - 1 of 3 v m + p - 1 units of time, where F, I and W
    // are a unit each.
    const auto four = *pipeline_facts_of("1F1B", 4).pipeline;
    EXPECT_EQ(four.better_schedule, "InterleavedZeroBubble");
    EXPECT_NEAR(four.better_bubble, 1.0 / 25, 1e-12);
    EXPECT_EQ(pipeline_facts_of("1F1B", 4, /*num_layers=*/3).pipeline->better_schedule, "");
    EXPECT_EQ(pipeline_facts_of("ZBVZeroBubble", 4).pipeline->better_schedule, "");
}

TEST(RunFacts, OfAScheduleOfOnesOwn) {
    JobConfig config;
    config.training.local_batch_size = 2;
    const layout::MeshShape mesh{{2, 1, 1, 1, 1}};
    train::TrainerOptions options = trainer_options(config, model::preset("llama3", "debugmodel"), mesh);
    options.own_schedule = parallel::schedule("GPipe", {2, 2, 2, parallel::StageOrder::Loop});
    options.own_schedule_path = "own.csv";
    const auto own = *run_facts(config, options, mesh, {}).pipeline;
    EXPECT_EQ(own.schedule, "own.csv");
    EXPECT_NEAR(own.bubble, 1.0 / 3, 1e-12);
    EXPECT_EQ(own.bubble_of_twice, std::nullopt);
}

TEST(RunFacts, OfTheOtherKeys) {
    JobConfig config;
    config.parallelism.enable_async_tensor_parallel = config::Switch::On;
    config.parallelism.fsdp_reshard_after_forward = config::ReshardAfterForward::Never;
    config.parallelism.context_parallel_rotate_method = config::RotateMethod::Ring;
    config.checkpoint.async_mode = config::AsyncMode::Disabled;
    config.checkpoint.interval = 7;
    config.validation.freq = 8;
    config.evaluation.freq = 9;
    const layout::MeshShape mesh{{1, 1, 2, 1, 2}};
    const model::ModelSpec spec = model::preset("llama3", "debugmodel");
    const observe::RunFacts facts =
        run_facts(config, trainer_options(config, spec, mesh), mesh, {"a setting"});
    EXPECT_EQ(facts.mesh.degrees, mesh.degrees);
    EXPECT_TRUE(facts.overlaps_products);
    EXPECT_FALSE(facts.reshards);
    EXPECT_EQ(facts.rotate_method, "ring");
    EXPECT_FALSE(facts.saves_async);
    EXPECT_EQ(facts.checkpoint_interval, 7);
    EXPECT_EQ(facts.validation_freq, 8);
    EXPECT_EQ(facts.evaluation_freq, 9);
    EXPECT_EQ(facts.slow_settings, std::vector<std::string>{"a setting"});
    EXPECT_FALSE(facts.pipeline);
}

TEST(RankTimesOptions, RanksOfAnUnbalancedContextAxisHaveUnequalWork) {
    JobConfig config;
    Environment environment;
    environment.slurm_node_name = "n7";
    const auto options = [&] { return rank_times_options(config, {}, environment); };
    EXPECT_EQ(options().unequal_axes, layout::AxisSet(layout::Axis::Pipeline));
    EXPECT_EQ(options().host, "n7");
    config.parallelism.context_parallel_load_balancer = layout::ContextBalance::None;
    EXPECT_EQ(options().unequal_axes, (layout::AxisSet{layout::Axis::Pipeline, layout::Axis::Context}));
    environment.slurm_node_name = "";
    EXPECT_NE(options().host, "");
}

}  // namespace
}  // namespace argosy::setup
