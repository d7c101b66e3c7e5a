#include "observe/tensorboard.h"

#include <gtest/gtest.h>

#include <map>

#include "observe/sample_metrics.h"

namespace argosy::observe {
namespace {

/// Two steps; the first had the higher memory peak.
std::map<std::string, double> points(const JobFigures& job,
                                     const std::optional<model::ExpertFigures>& experts = {}) {
    StepWindow window;
    window.newest = sample_step(7);
    window.newest.experts = experts;
    window.num_steps = 2;
    window.tokens = 2 * window.newest.tokens;
    window.times = window.newest.times;
    window.times += window.newest.times;
    window.peak_bytes = 2 * window.newest.memory.peak_bytes;
    std::map<std::string, double> points;
    for (const auto& [tag, value] : tensorboard_scalars(window, job)) {
        EXPECT_TRUE(points.emplace(tag, value).second) << tag << " twice";
    }
    return points;
}

TEST(TensorboardScalars, HaveEachLayerWithExperts) {
    model::ExpertFigures experts = sample_experts();
    experts.bias_min = {-0.5, 0}, experts.bias_max = {0.25, 0}, experts.step_loss = 0.75;
    const auto without = points(sample_job()), with = points(sample_job(), experts);
    const std::map<std::string, double> expected = {{"experts/load_max_over_mean/worst_layer", 2},
                                                    {"experts/load_max_over_mean/layers.1", 2},
                                                    {"experts/load_max_over_mean/layers.3", 1},
                                                    {"experts/entropy/layers.1", 0.5},
                                                    {"experts/entropy/layers.3", 1},
                                                    {"experts/unused/layers.1", 1},
                                                    {"experts/unused/layers.3", 0},
                                                    {"experts/bias_range/layers.1", 0.75},
                                                    {"experts/bias_range/layers.3", 0},
                                                    {"loss_metrics/step_loss", 0.75}};
    for (const auto& [tag, value] : expected) EXPECT_EQ(with.at(tag), value) << tag;
    EXPECT_EQ(with.size(), without.size() + expected.size());
}

TEST(TensorboardScalars, ByHand) {
    const std::map<std::string, double> expected = {
        {"loss_metrics/global_avg_loss", 3.25},
        {"grad_norm", 0.5},
        {"lr", 3e-4},
        {"throughput(tps)", 32},
        {"tflops", 64},
        {"mfu(%)", 6.4},
        {"time_metrics/end_to_end(s)", 2},
        {"time_metrics/data_loading(s)", 0.1},
        {"time_metrics/data_loading(%)", 5},
        {"time_metrics/compute(s)", 1.4},
        {"time_metrics/optimizer(s)", 0.2},
        {"time_metrics/checkpoint(s)", 0},
        {"time_metrics/validation(s)", 0},
        {"time_metrics/evaluation(s)", 0},
        {"time_metrics/other(s)", 0.05},
        {"time_metrics/exposed(dp_shard x cp)(s)", 0.2},
        {"time_metrics/exposed(tp)(s)", 0.05},
        {"memory/max_active(GiB)", 3},
        {"memory/rss(GiB)", 2},
    };
    const auto found = points(sample_job());
    EXPECT_EQ(found.size(), expected.size());
    for (const auto& [tag, value] : expected) EXPECT_NEAR(found.at(tag), value, 1e-12) << tag;
}

TEST(TensorboardScalars, HaveTheCostOfASave) {
    StepWindow window;
    window.newest = sample_step(7);
    window.num_steps = 2;
    window.times = window.newest.times;
    window.times.checkpoint_ms = 30;
    std::map<std::string, double> found;
    for (const auto& [tag, value] : tensorboard_scalars(window, sample_job())) found[tag] = value;
    EXPECT_NEAR(found.at("time_metrics/checkpoint(s)"), 0.015, 1e-12);
}

TEST(TensorboardScalars, TheirPartsAddUpToTheStep) {
    StepWindow window;
    window.newest = sample_step(7);
    window.num_steps = 2;
    window.times = window.newest.times;
    window.times.validation_ms = 300;
    window.times.evaluation_ms = 500;
    window.times.total_ms += 800;
    double sum = 0, whole = 0;
    for (const auto& [tag, value] : tensorboard_scalars(window, sample_job())) {
        if (!tag.starts_with("time_metrics/") || !tag.ends_with("(s)")) continue;
        (tag == "time_metrics/end_to_end(s)" ? whole : sum) += value;
    }
    EXPECT_NEAR(whole, 1.4, 1e-12);
    EXPECT_NEAR(sum, whole, 1e-12);
}

TEST(TensorboardScalars, HaveTheFiguresOfAGpusAllocator) {
    StepWindow window;
    window.newest = sample_step(7);
    window.newest.memory.allocator = {.peak_reserved_bytes = int64_t{1} << 30, .num_retries = 3};
    window.reserved_bytes = int64_t{2} << 30;
    std::map<std::string, double> found;
    for (const auto& [tag, value] : tensorboard_scalars(window, sample_job())) found[tag] = value;
    EXPECT_EQ(found.at("memory/max_reserved(GiB)"), 2);
    EXPECT_EQ(found.at("memory/num_alloc_retries"), 3);
}

TEST(TensorboardScalars, NameThePeakOfUtilisation) {
    const auto measured = points(sample_job(PeakSource::MeasuredGemm)),
               unknown = points(sample_job(PeakSource::None)), both = points(measured_job());
    EXPECT_NEAR(measured.at("of_gemm(%)"), 3.2, 1e-12);
    EXPECT_FALSE(measured.contains("mfu(%)"));
    EXPECT_FALSE(unknown.contains("mfu(%)"));
    EXPECT_FALSE(unknown.contains("of_gemm(%)"));
    EXPECT_NEAR(both.at("mfu(%)"), 6.4, 1e-12);
    EXPECT_NEAR(both.at("of_gemm(%)"), 4, 1e-12);
}

}  // namespace
}  // namespace argosy::observe
