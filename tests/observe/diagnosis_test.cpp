#include "observe/diagnosis.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>

#include "base/log.h"
#include "scratch_folder.h"

namespace argosy::observe {
namespace {

using Texts = std::vector<std::string>;

/// Steps in which nothing stands out.
Observed good_steps() {
    Observed observed{.num_steps = 1000};
    observed.times = {
        .total_ms = 10000, .data_ms = 100, .compute_ms = 9000, .optimizer_ms = 500, .other_ms = 100};
    for (const char* axes : {"tp", "dp_shard x cp", "pp"}) observed.times.exposed_ms[axes] = 100;
    return observed;
}

/// Two nodes with four ranks each.
RunFacts facts_of(const layout::MeshShape& mesh) {
    return {.mesh = mesh,
            .hosts = {{"n1", "n2"}, {0, 0, 0, 0, 1, 1, 1, 1}, std::vector<int>(8, -1)},
            .rotate_method = "allgather",
            .checkpoint_interval = 100,
            .validation_freq = 10,
            .evaluation_freq = 500};
}

constexpr layout::MeshShape kShardsOnNodes{{1, 1, 8, 1, 1}}, kTensorInNodes{{1, 1, 2, 1, 4}};

Texts texts_of(const Observed& observed, const RunFacts& facts) {
    Texts texts;
    for (const Cause& cause : diagnose(observed, facts)) texts.push_back(cause.text);
    return texts;
}

/// The texts if `axes` take `percent` of the time.
Texts exposed(const std::string& axes, double percent, const RunFacts& facts) {
    Observed observed = good_steps();
    observed.times.exposed_ms[axes] = 100 * percent;
    return texts_of(observed, facts);
}

/// The texts if a part takes `percent` of the time.
Texts part(double StepTimes::*time, double percent, const RunFacts& facts = facts_of(kTensorInNodes)) {
    Observed observed = good_steps();
    observed.times.*time = 100 * percent;
    return texts_of(observed, facts);
}

TEST(Diagnose, NothingStandsOutOfGoodSteps) {
    EXPECT_EQ(texts_of(good_steps(), facts_of(kTensorInNodes)), Texts());
    EXPECT_EQ(texts_of({}, {}), Texts());
}

TEST(Diagnose, ShardsAcrossNodes) {
    EXPECT_EQ(exposed("dp_shard", 8, facts_of(kShardsOnNodes)), Texts());
    EXPECT_EQ(
        exposed("dp_shard", 31, facts_of(kShardsOnNodes)),
        Texts{
            "exposed communication over dp_shard takes 32 % of a step, which crosses nodes: shard within the "
            "node: --parallelism.data_parallel_shard_degree=4 "
            "--parallelism.data_parallel_replicate_degree=2, "
            "if the memory suffices (pretrain --plan)"});
    EXPECT_EQ(
        exposed("dp_shard", 31, facts_of({{1, 4, 2, 1, 1}})),
        Texts{"exposed communication over dp_shard takes 32 % of a step: a larger training.local_batch_size "
              "hides more of it; --parallelism.fsdp_reshard_after_forward=never gathers the weights once "
              "instead of twice, if the memory suffices"})
        << "within a node";
    RunFacts gathered_once = facts_of(kTensorInNodes);
    gathered_once.reshards = false;
    EXPECT_EQ(
        exposed("dp_shard", 31, gathered_once),
        Texts{"exposed communication over dp_shard takes 32 % of a step: a larger training.local_batch_size "
              "hides more of it"})
        << "across nodes, but tp fills each node";
}

TEST(Diagnose, Replicas) {
    const std::string text =
        "exposed communication over dp_replicate takes 20 % of a step: gradients are summed once a step, so "
        "a larger "
        "training.global_batch_size has less of it for each token";
    EXPECT_EQ(exposed("dp_replicate", 20, facts_of(kTensorInNodes)), Texts{text});
    EXPECT_EQ(exposed("dp_replicate x dp_shard", 20, facts_of(kTensorInNodes)), Texts{text});
}

TEST(Diagnose, TensorParallelism) {
    RunFacts facts = facts_of(kTensorInNodes);
    EXPECT_EQ(exposed("tp", 15, facts),
              Texts{"exposed communication over tp takes 15 % of a step: "
                    "on GPUs --parallelism.enable_async_tensor_parallel=auto overlaps it with the products "
                    "where that "
                    "gains, and pretrain --plan lists what each collective costs; a smaller "
                    "parallelism.tensor_parallel_degree has less of it"});
    facts.overlaps_products = true;
    EXPECT_EQ(exposed("tp", 15, facts), Texts{"exposed communication over tp takes 15 % of a step: take a "
                                              "parallelism.tensor_parallel_degree smaller than 4"});
    EXPECT_EQ(texts_of(good_steps(), facts_of({{1, 1, 1, 1, 8}})),
              Texts{"the ranks of tp are on several nodes, whose network is many times slower than the links "
                    "within a node: --parallelism.tensor_parallel_degree=4 keeps them on one"});
    RunFacts six = facts_of({{1, 1, 3, 1, 4}});  // ranks 4 to 7 are on both nodes, ranks 0 to 3 on one
    six.hosts = {{"n1", "n2"}, {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, std::vector<int>(12, -1)};
    EXPECT_NE(texts_of(good_steps(), six).at(0).find("tensor_parallel_degree=2 keeps"), std::string::npos);
    RunFacts dealt = facts_of({{1, 1, 1, 1, 4}});
    dealt.hosts = {{"n1", "n2"}, {0, 1, 1, 1}, std::vector<int>(4, -1)};
    EXPECT_NE(texts_of(good_steps(), dealt).at(0).find("give a node ranks with consecutive numbers"),
              std::string::npos);
}

TEST(Diagnose, ContextParallelism) {
    RunFacts facts = facts_of({{1, 1, 2, 4, 1}});
    const auto text = [](const std::string& method) {
        return Texts{
            "exposed communication over cp takes 15 % of a step: try "
            "--parallelism.context_parallel_rotate_method=" +
            method + ", or a smaller parallelism.context_parallel_degree"};
    };
    EXPECT_EQ(exposed("cp", 15, facts), text("ring"));
    facts.rotate_method = "ring";
    EXPECT_EQ(exposed("cp", 15, facts), text("allgather"));
}

TEST(Diagnose, ExpertParallelism) {
    EXPECT_EQ(exposed("ep", 15, facts_of({{1, 1, 8, 1, 1}})),
              Texts{"exposed communication over ep takes 15 % of a step, which includes waits for the rank with "
                    "the busiest experts: even the loads with keys of [moe], or take a smaller "
                    "parallelism.expert_parallel_degree, if the memory suffices (pretrain --plan)"});
}

TEST(Diagnose, Pipelines) {
    RunFacts facts = facts_of({{2, 1, 1, 1, 4}});
    facts.pipeline = {.schedule = "1F1B",
                      .num_microbatches = 4,
                      .bubble = 0.2,
                      .bubble_of_twice = 1.0 / 9,
                      .better_schedule = "ZBVZeroBubble",
                      .better_bubble = 1.0 / 13};
    const std::string text =
        "; the bubble of 1F1B with 4 microbatches is 20 %: twice as many have 11 % "
        "(training.global_batch_size, or a "
        "smaller parallelism.pipeline_parallel_microbatch_size); "
        "--parallelism.pipeline_parallel_schedule=ZBVZeroBubble has 8 %";
    EXPECT_EQ(exposed("pp", 25, facts),
              Texts{"waiting for other pipeline stages takes 25 % of a step" + text});
    EXPECT_EQ(exposed("pp", 35, facts),
              Texts{"waiting for other pipeline stages takes 35 % of a step" + text +
                    "; the rest is unequal stages or slow transfers: balance the stages with "
                    "parallelism.pipeline_parallel_layers_per_stage"});
    facts.pipeline = {.schedule = "own.csv", .num_microbatches = 4, .bubble = 0.2};
    EXPECT_EQ(exposed("pp", 25, facts),
              Texts{"waiting for other pipeline stages takes 25 % of a step; the bubble of "
                    "own.csv with 4 microbatches is 20 %"});
}

TEST(Diagnose, TheEndOfAStep) {
    EXPECT_EQ(
        exposed("world", 12, facts_of(kTensorInNodes)),
        Texts{
            "waiting for the slowest rank at the end of a step takes 12 %: the ranks have unequal speeds or "
            "work; ranks.jsonl has the times of each"});
}

TEST(Diagnose, Data) {
    EXPECT_EQ(part(&StepTimes::data_ms, 5), Texts());
    EXPECT_EQ(
        part(&StepTimes::data_ms, 6),
        Texts{
            "waiting for data takes 6 % of a step: copy the token files to a local or faster disk, and leave "
            "each rank a processor for reading"});
}

TEST(Diagnose, Saves) {
    RunFacts facts = facts_of(kTensorInNodes);
    EXPECT_EQ(part(&StepTimes::checkpoint_ms, 8, facts),
              Texts{"saving stops training for 8 % of the time: --checkpoint.interval=427 makes it 2 %"})
        << "8 s a save and 92 s of training: 427 steps take 92 * 4.27 s, and 8 s are 2 % of all";
    facts.saves_async = false;
    EXPECT_EQ(part(&StepTimes::checkpoint_ms, 8, facts),
              Texts{"saving stops training for 8 % of the time: --checkpoint.async_mode=async saves in the "
                    "background; "
                    "--checkpoint.interval=427 makes it 2 %"});
}

TEST(Diagnose, ValidationAndEvaluation) {
    EXPECT_EQ(part(&StepTimes::validation_ms, 9), Texts());
    EXPECT_EQ(part(&StepTimes::validation_ms, 20),
              Texts{"validation takes 20 % of the time: --validation.freq=48 makes it about 5 %"});
    EXPECT_EQ(
        part(&StepTimes::evaluation_ms, 20),
        Texts{"the evaluation of tasks takes 20 % of the time: --evaluation.freq=2375 makes it about 5 %"});
    Observed short_run = good_steps();
    short_run.num_steps = 500;
    short_run.times.evaluation_ms = 2000;
    EXPECT_EQ(texts_of(short_run, facts_of(kTensorInNodes)),
              Texts{"the evaluation of tasks after the last step takes 20 % of the time of so few steps"});
}

TEST(Diagnose, TheOptimizer) {
    const std::string text =
        "the optimizer takes 20 % of a step: a larger training.global_batch_size spreads it over more tokens";
    EXPECT_EQ(part(&StepTimes::optimizer_ms, 20), Texts{text});
    EXPECT_EQ(
        part(&StepTimes::optimizer_ms, 20, facts_of({{1, 8, 1, 1, 1}})),
        Texts{text + "; a larger parallelism.data_parallel_shard_degree gives each rank fewer weights"});
}

TEST(Diagnose, MemorySettingsAndSlowRanks) {
    RunFacts facts = facts_of(kTensorInNodes);
    facts.slow_settings = {"CUDA_LAUNCH_BLOCKING=1 on all ranks: slow; unset it"};
    Observed observed = good_steps();
    observed.num_allocator_retries = 3;
    observed.slow_ranks = {"rank 5 (host n3) computes 18 % slower"};
    observed.times.data_ms = 1000;
    const Texts texts = texts_of(observed, facts);
    ASSERT_EQ(texts.size(), 4U);
    EXPECT_EQ(texts[0], facts.slow_settings[0]);
    EXPECT_EQ(texts[1], observed.slow_ranks[0]);
    EXPECT_EQ(texts[2],
              "the GPU's memory was full 3 times, and each time the allocator waited for the GPU: lower "
              "training.local_batch_size or set --activation_checkpoint.mode=full");
    EXPECT_TRUE(texts[3].starts_with("waiting for data takes 10 %")) << texts[3];
}

TEST(Growth, NamesTheLargestParts) {
    const StepParts before = {{"compute", 100}, {"data", 10}, {"other", 5}};
    EXPECT_EQ(growth_text(before, before), "");
    EXPECT_EQ(growth_text(before, {{"compute", 150}, {"data", 5}, {"other", 6}}),
              "compute takes 50 ms (50 %) more");
    EXPECT_EQ(growth_text(before, {{"compute", 100}, {"data", 30.5}, {"exposed tp", 1234}}),
              "exposed tp takes 1234 ms more");
    EXPECT_EQ(growth_text(before, {{"compute", 100}, {"data", 30.5}, {"exposed tp", 12.34}}),
              "data takes 20.5 ms (205 %) more, exposed tp takes 12.3 ms more");
}

/// A job of one rank, whose log is kept.
class DiagnosisOfARun : public ::testing::Test, private comm::Communicator {
  protected:
    DiagnosisOfARun() : Communicator("control") {
        spdlog::set_default_logger(
            std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
        spdlog::set_pattern("%v");
    }
    ~DiagnosisOfARun() override { spdlog::set_default_logger(before_); }
    int rank() const override { return 0; }
    int size() const override { return 1; }
    std::unique_ptr<Communicator> subgroup(std::span<const int>, std::string) const override {
        return nullptr;
    }
    comm::Pending submit(std::span<const comm::Op>) override { return {}; }

    /// Adds steps, each with a computation of `ms` and as much other work as `more` says.
    void train(int num_steps, double ms, StepTimes more = {}) {
        for (int i = 0; i < num_steps; ++i) {
            ++step_;
            StepMetrics metrics{.step = step_, .step_of_start = step_, .tokens = 1000};
            metrics.times = more;
            metrics.times.compute_ms += ms;
            metrics.times.total_ms = ms + more.data_ms + more.validation_ms + more.checkpoint_ms;
            diagnosis_.add(metrics);
        }
    }
    std::string log() {
        const std::string text = log_.str();
        log_.str("");
        return text;
    }

    std::ostringstream log_;
    std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
    Diagnosis diagnosis_{facts_of({}), {}, {.log_freq = 5, .final_step = 1000}, *this};
    int64_t step_ = 0;
};

TEST_F(DiagnosisOfARun, AFallIsExplainedOnce) {
    train(200, 100);
    EXPECT_EQ(log(), "");
    train(5, 100, {.data_ms = 100});
    EXPECT_EQ(
        log(),
        "steps 201 to 205: throughput fell to 50 % of the run's median (5000 instead of 10000 tokens/s): "
        "data takes 100 ms more; waiting for data takes 50 % of a step: copy the token files to a local or "
        "faster disk, and leave each rank a processor for reading\n");
    train(10, 100, {.data_ms = 100});
    train(5, 100, {.data_ms = 120});
    EXPECT_EQ(log(), "") << "the same fall";
    train(5, 100, {.data_ms = 400});
    EXPECT_NE(log().find("steps 221 to 225: throughput fell to 20 % of the run's median"), std::string::npos);
    train(30, 100);
    train(5, 130);
    EXPECT_EQ(
        log(),
        "steps 256 to 260: throughput fell to 77 % of the run's median (7692 instead of 10000 tokens/s): "
        "compute takes 30 ms (30 %) more\n");
}

TEST_F(DiagnosisOfARun, AFallOfUnevenWindowsIsOneBelowMostOfThem) {
    train(5, 100);  // start-up
    for (int i = 0; i < 40; ++i) train(5, i % 5 == 0 ? 140 : 100);
    EXPECT_EQ(log(), "") << "a fifth of the windows is that slow";
    train(5, 180);
    EXPECT_NE(log().find("throughput fell to 56 % of the run's median"), std::string::npos);
}

TEST_F(DiagnosisOfARun, SmallFallsAndSavesAreNone) {
    train(30, 100);
    train(5, 120);
    train(5, 100, {.checkpoint_ms = 500, .validation_ms = 500});
    EXPECT_EQ(log(), "");
}

TEST_F(DiagnosisOfARun, AFallIsNotExplainedByAValidation) {
    train(30, 100);
    train(5, 200, {.validation_ms = 500});
    const std::string text = log();
    EXPECT_NE(text.find("compute takes 100 ms (100 %) more"), std::string::npos) << text;
    EXPECT_EQ(text.find("validation"), std::string::npos) << text;
}

TEST_F(DiagnosisOfARun, TheFirstWindowsAreNotCompared) {
    train(5, 100);
    train(5, 200);
    train(5, 300);
    EXPECT_EQ(log(), "");
}

TEST_F(DiagnosisOfARun, TheEndSaysWhatStandsOut) {
    train(5, 100, {.data_ms = 1e6});
    train(20, 100, {.data_ms = 25});
    log();
    diagnosis_.end();
    EXPECT_EQ(log(),
              "diagnosis (data): waiting for data takes 20 % of a step: copy the token files to a local or "
              "faster disk, and leave each rank a processor for reading\n")
        << "without the first steps";
}

TEST_F(DiagnosisOfARun, AShortRunEndsInSilence) {
    train(9, 100, {.data_ms = 100});
    diagnosis_.end();
    EXPECT_EQ(log(), "");
}

TEST_F(DiagnosisOfARun, AGoodRunEndsInSilence) {
    train(30, 100);
    diagnosis_.end();
    EXPECT_EQ(log(), "");
}

}  // namespace
}  // namespace argosy::observe
