#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "observe/sample_metrics.h"

namespace argosy::observe {
namespace {

using nlohmann::json;

TEST(Speed, ByHand) {
    const Speed rates = speed(4096, 2, sample_job());
    EXPECT_DOUBLE_EQ(rates.tokens_per_second, 2048);
    EXPECT_DOUBLE_EQ(rates.tokens_per_second_per_device, 32);
    EXPECT_DOUBLE_EQ(rates.model_tflops_per_device, 32);
    EXPECT_DOUBLE_EQ(rates.mfu_causal.value(), 0.032);
    EXPECT_DOUBLE_EQ(rates.mfu_noncausal.value(), 0.064);
    EXPECT_FALSE(rates.of_gemm.has_value());
    EXPECT_DOUBLE_EQ(speed(4096, 2, measured_job()).of_gemm.value(), 0.04);
    EXPECT_FALSE(speed(4096, 2, sample_job(PeakSource::None)).mfu_causal.has_value());
}

// On an H100, 44 TFLOP/s in fp32 and 383 in bf16: the faster run has the higher utilisation.
TEST(Speed, UtilisationComparesRunsOfDifferentTypes) {
    const auto job = [](double own_peak) {
        return JobFigures{.flops_per_token = {.causal = 1e12, .noncausal = 1e12},
                          .datasheet = {989e12, PeakSource::Datasheet},
                          .compute_datasheet = {own_peak, PeakSource::Datasheet}};
    };
    const Speed fp32 = speed(44, 1, job(67e12)), bf16 = speed(383, 1, job(989e12));
    EXPECT_NEAR(fp32.mfu_causal.value(), 0.0445, 1e-4);
    EXPECT_NEAR(fp32.of_compute_type.value(), 0.657, 1e-3);
    EXPECT_NEAR(bf16.mfu_causal.value(), 0.387, 1e-3);
    EXPECT_DOUBLE_EQ(bf16.of_compute_type.value(), bf16.mfu_causal.value());
}

TEST(JsonLine, HasEveryKey) {
    StepMetrics metrics = sample_step(7);
    metrics.skipped_updates = 2;
    const std::string text = json_line(metrics, sample_job());
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_EQ(text.substr(0, 22), R"({"step":7,"loss":3.25,)");
    const json expected = {
        {"step", 7},
        {"loss", 3.25},
        {"grad_norm", 0.5},
        {"lr", 3e-4},
        {"finite", true},
        {"counts_for_speed", true},
        {"tokens", 4096},
        {"tokens_per_second", 2048.0},
        {"tokens_per_second_per_device", 32.0},
        {"model_tflops_per_device", 32.0},
        {"mfu_causal", 0.032},
        {"mfu_noncausal", 0.064},
        {"peak_flops_source", "datasheet"},
        {"datasheet_tflops", 1000.0},
        {"number_types", {{"compute", "bfloat16"}, {"master", "float32"}, {"reduce", "float32"}}},
        {"compute_type_tflops", 1000.0},
        {"mfu_compute_type", 0.032},
        {"measured_gemm_tflops", nullptr},
        {"memory_peak_gib", 1.5},
        {"rss_gib", 2.0},
        {"time_ms",
         {{"total", 2000.0},
          {"data", 100.0},
          {"compute", 1400.0},
          {"optimizer", 200.0},
          {"exposed", {{"dp_shard x cp", 200.0}, {"tp", 50.0}}},
          {"checkpoint", 0.0},
          {"validation", 0.0},
          {"evaluation", 0.0},
          {"other", 50.0}}},
        {"checkpoint_stall_ms", 0.0},
        {"skipped_updates", 2},
        {"memory_reserved_gib", nullptr},
        {"memory_retries", nullptr},
    };
    EXPECT_EQ(json::parse(text), expected);
}

TEST(JsonLine, HasTheKindsOfComputationIfTheyAreKnown) {
    StepMetrics metrics = sample_step(1);
    metrics.times.compute_kinds_ms = {1, 2, 3, 4, 5, 6};
    const json expected = {{"forward", 1.0},  {"recompute", 2.0}, {"head", 3.0},
                           {"backward", 4.0}, {"weights", 5.0},   {"other", 6.0}};
    const json line = json::parse(json_line(metrics, sample_job()));
    EXPECT_EQ(line["compute_kinds_ms"], expected);
}

TEST(JsonLine, HasTheCastsOfProductsIfThereAreAny) {
    JobFigures job = sample_job();
    job.product_casts = "float8 tensorwise";
    EXPECT_EQ(json::parse(json_line(sample_step(1), job))["number_types"]["products"], "float8 tensorwise");
}

TEST(JsonLine, HasTheEfficiencyIfThereIsABaseline) {
    StepMetrics metrics = sample_step(1);
    EXPECT_FALSE(json::parse(json_line(metrics, sample_job())).contains("efficiency"));
    const double speed = json::parse(json_line(metrics, sample_job()))["tokens_per_second"];
    metrics.baseline_tokens_per_second = 4 * speed;
    EXPECT_EQ(json::parse(json_line(metrics, sample_job()))["efficiency"], 0.25);
}

TEST(JsonLine, HasTheFiguresOfAGpusAllocator) {
    StepMetrics metrics = sample_step(1);
    metrics.memory.allocator = {.peak_reserved_bytes = int64_t{7} << 28, .num_retries = 3};
    const json line = json::parse(json_line(metrics, sample_job()));
    EXPECT_EQ(line["memory_reserved_gib"], 1.75);
    EXPECT_EQ(line["memory_retries"], 3);
}

TEST(JsonLine, HasTheCostOfASave) {
    StepMetrics metrics = sample_step(1);
    metrics.times.checkpoint_ms = 12.5;
    const json line = json::parse(json_line(metrics, sample_job()));
    EXPECT_EQ(line["checkpoint_stall_ms"], 12.5);
    EXPECT_EQ(line["time_ms"]["checkpoint"], 12.5);
}

TEST(JsonLine, HasTheLossOfAValidation) {
    StepMetrics metrics = sample_step(1);
    metrics.validation = {.loss = 0.5, .num_tokens = 77};
    metrics.times.validation_ms = 1500;
    const json line = json::parse(json_line(metrics, sample_job()));
    EXPECT_EQ(line["validation_loss"], 0.5);
    EXPECT_EQ(line["validation_perplexity"], std::exp(0.5));
    EXPECT_EQ(line["validation_tokens"], 77);
    EXPECT_EQ(line["time_ms"]["validation"], 1500);
    EXPECT_EQ(validation_line(metrics, 40),
              "step  1/40  validation loss   0.5000  perplexity    1.649  77 tokens in 1.500 s");
}

TEST(JsonLine, HasTheMetricsOfEvaluatedTasks) {
    StepMetrics metrics = sample_step(1);
    EXPECT_FALSE(json::parse(json_line(metrics, sample_job())).contains("evaluation"));
    metrics.evaluation = {{"choices", {{"acc", 0.25, 0.125}, {"acc_norm", 0.5, 0.0625}}},
                          {"texts", {{"word_perplexity", 12.5}}}};
    metrics.times.evaluation_ms = 7;
    const json line = json::parse(json_line(metrics, sample_job()));
    const json expected = {
        {"choices", {{"acc", 0.25}, {"acc_stderr", 0.125}, {"acc_norm", 0.5}, {"acc_norm_stderr", 0.0625}}},
        {"texts", {{"word_perplexity", 12.5}}}};
    EXPECT_EQ(line["evaluation"], expected);
    EXPECT_EQ(line["time_ms"]["evaluation"], 7);
    EXPECT_EQ(evaluation_line(metrics, metrics.evaluation[0], 40),
              "step  1/40  choices  acc 0.2500 +- 0.1250  acc_norm 0.5000 +- 0.0625");
}

TEST(EvaluationLine, ShowsAHugePerplexityWithAnExponent) {
    const TaskMetrics task{"text", {{"word_perplexity", 1e300, 2e7}, {"byte_perplexity", 9999999, {}}}};
    EXPECT_EQ(evaluation_line(sample_step(1), task, 40),
              "step  1/40  text  word_perplexity 1.0000e+300 +- 2.0000e+07  byte_perplexity 9999999.0000");
}

TEST(JsonLine, KeepsEveryBitOfALoss) {
    StepMetrics metrics = sample_step(1);
    metrics.loss = 3.4567001;
    EXPECT_EQ(json::parse(json_line(metrics, sample_job()))["loss"].get<double>(), metrics.loss);
}

TEST(JsonLine, IsValidForAllNumbers) {
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity()}) {
        StepMetrics metrics = sample_step(1);
        metrics.loss = bad;
        json line = json::parse(json_line(metrics, sample_job()));
        EXPECT_TRUE(line["loss"].is_null());
        EXPECT_EQ(line["finite"], false);
        EXPECT_EQ(line["grad_norm"], 0.5);

        metrics = sample_step(1);
        metrics.grad_norm = bad;
        metrics.times.total_ms = 0;
        line = json::parse(json_line(metrics, sample_job()));
        EXPECT_TRUE(line["grad_norm"].is_null());
        EXPECT_EQ(line["finite"], false);
        EXPECT_TRUE(line["tokens_per_second"].is_null());
        EXPECT_TRUE(line["mfu_causal"].is_null());
    }
}

TEST(JsonLine, HasTheNormsOfUnitsInOrderOnRequest) {
    StepMetrics metrics = sample_step(1);
    EXPECT_FALSE(json::parse(json_line(metrics, sample_job())).contains("layer_grad_norms"));
    metrics.layer_grad_norms = {
        {"embedding", 3}, {"layers.0", std::numeric_limits<double>::quiet_NaN()}, {"head", 4}};
    const std::string text = json_line(metrics, sample_job());
    EXPECT_TRUE(text.ends_with(R"("layer_grad_norms":{"embedding":3.0,"layers.0":null,"head":4.0}})"))
        << text;
}

TEST(JsonLine, HasTheScoresIfTheyAreClipped) {
    StepMetrics metrics = sample_step(1);
    EXPECT_FALSE(json::parse(json_line(metrics, sample_job())).contains("attention_scores"));
    metrics.scores = {112.5, 3};
    const std::string text = json_line(metrics, sample_job());
    EXPECT_TRUE(text.ends_with(R"("attention_scores":{"largest":112.5,"heads_too_large":3}})")) << text;
}

TEST(JsonLine, HasTheFiguresOfExperts) {
    StepMetrics metrics = sample_step(7);
    EXPECT_FALSE(json::parse(json_line(metrics, sample_job())).contains("experts"));
    metrics.experts = sample_experts();
    const auto figures = [&](bool has_log_line = false) {
        return json::parse(json_line(metrics, sample_job(), has_log_line))["experts"];
    };
    EXPECT_EQ(figures(),
              json::parse(R"({"layers": [1, 3], "load_max_over_mean": [2.0, 1.0], "entropy": [0.5, 1.0],
                                         "unused": [1, 0]})"));
    EXPECT_EQ(figures(/*has_log_line=*/true)["counts"], json::parse("[[4, 0, 2], [2, 2, 2]]"));
    metrics.experts->bias_min = {-0.5, 0}, metrics.experts->bias_max = {0.25, 0};
    metrics.experts->sequence_loss = 1.5, metrics.experts->z_loss = 0;
    metrics.experts->forced_balance = true;
    EXPECT_EQ(figures(),
              json::parse(R"({"layers": [1, 3], "load_max_over_mean": [2.0, 1.0], "entropy": [0.5, 1.0],
                                         "unused": [1, 0], "bias_min": [-0.5, 0.0], "bias_max": [0.25, 0.0],
                                         "sequence_loss": 1.5, "z_loss": 0.0, "forced_balance": true})"));
}

TEST(JsonLine, SaysIfUtilisationIsUnknownOrMeasured) {
    json line = json::parse(json_line(sample_step(1), sample_job(PeakSource::None)));
    EXPECT_TRUE(line["mfu_causal"].is_null());
    EXPECT_TRUE(line["mfu_noncausal"].is_null());
    EXPECT_EQ(line["peak_flops_source"], "none");
    line = json::parse(json_line(sample_step(1), sample_job(PeakSource::MeasuredGemm)));
    EXPECT_DOUBLE_EQ(line["mfu_causal"], 0.032);
    EXPECT_EQ(line["peak_flops_source"], "measured GEMM");
    EXPECT_EQ(line["measured_gemm_tflops"], 1000.0);
    EXPECT_TRUE(line["datasheet_tflops"].is_null());
}

TEST(JsonLine, HasBothPeaksAndUtilisationAgainstTheDatasheets) {
    const json line = json::parse(json_line(sample_step(1), measured_job()));
    EXPECT_EQ(line["peak_flops_source"], "datasheet");
    EXPECT_DOUBLE_EQ(line["mfu_causal"], 0.032);
    EXPECT_EQ(line["datasheet_tflops"], 1000.0);
    EXPECT_EQ(line["measured_gemm_tflops"], 800.0);
}

}  // namespace
}  // namespace argosy::observe
