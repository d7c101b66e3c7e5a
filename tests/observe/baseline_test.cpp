#include "observe/baseline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "observe/sample_metrics.h"
#include "scratch_folder.h"

namespace argosy::observe {
namespace {

/// Times of a step of `ms`, of which 100 ms are not computation.
StepTimes step_of(double ms) {
    StepTimes times{.total_ms = ms, .data_ms = 20, .compute_ms = ms - 100, .other_ms = 30};
    times.exposed_ms["tp"] = 50;
    return times;
}

/// A run whose steps of 1000 tokens take `ms`, with a deviation of `noise` up and down in turn.
StepSpeeds run_of(double ms, double noise = 0, int64_t num_steps = 45) {
    StepSpeeds speeds;
    for (int64_t step = 1; step <= num_steps; ++step)
        speeds.add(step, step > 5, 1000, step_of(ms * (1 + noise * static_cast<double>(step % 3 - 1))));
    return speeds;
}

Change change(const StepSpeeds& earlier, const StepSpeeds& run) {
    return compare(earlier, run, "old").change;
}

TEST(Compare, TwoPercentAreAlwaysNoise) {
    EXPECT_EQ(change(run_of(500), run_of(500)), Change::None);
    EXPECT_EQ(change(run_of(500), run_of(509)), Change::None);
    EXPECT_EQ(change(run_of(500), run_of(512)), Change::Slower);
    EXPECT_EQ(change(run_of(500), run_of(400)), Change::None) << "faster";
}

// In turn slower, equal and faster by 20 %: the median absolute deviation of 40 speeds near 2000 tokens/s is
// 0.2 / 1.2 = 1/6 of them, so the standard error is 1.858 / 6 / sqrt(40) = 4.9 %. That of a difference to a
// run at 0.85 of the speed is 6.4 %, and three of those are 19.3 %.
TEST(Compare, NoisySpeedsNeedALargerDifference) {
    EXPECT_NEAR(run_of(500, 0.2).standard_error(), 2000 * 1.2533 * 1.4826 / 6 / std::sqrt(40), 1e-6);
    EXPECT_EQ(change(run_of(500, 0.2), run_of(500 / 0.85, 0.2)), Change::None);
    EXPECT_EQ(change(run_of(500, 0.2), run_of(500 / 0.77, 0.2)), Change::Slower);
    EXPECT_EQ(change(run_of(500), run_of(500 / 0.9)), Change::Slower) << "10 % without noise";
}

TEST(Compare, TheTextHasBothSpeedsAndThePartThatGrew) {
    EXPECT_EQ(compare(run_of(500), run_of(625), "old").text,
              "slower than the baseline: 1600 tokens/s, 20.0 % less than old with 2000 (medians of 40 and 40 "
              "steps; noise 2.0 %). compute takes 125 ms (31 %) more a step");
    EXPECT_EQ(compare(run_of(500), run_of(400), "old").text,
              "2500 tokens/s, 25.0 % more than old with 2000 (medians of 40 and 40 steps; noise 2.0 %)");
}

TEST(Compare, FewStepsAreNotCompared) {
    EXPECT_EQ(change(run_of(500, 0, 14), run_of(900)), Change::TooFewSteps);
    EXPECT_EQ(change(run_of(500), run_of(900, 0, 14)), Change::TooFewSteps);
    EXPECT_EQ(change(run_of(500, 0, 15), run_of(900, 0, 15)), Change::Slower);
}

TEST(StepSpeeds, StartUpAndOtherWorkDoNotCount) {
    StepMetrics step{.step_of_start = 5, .times = step_of(500)};
    EXPECT_FALSE(step.counts_for_speed());
    step.step_of_start = 6;
    EXPECT_TRUE(step.counts_for_speed());
    for (const auto part :
         {&StepTimes::checkpoint_ms, &StepTimes::validation_ms, &StepTimes::evaluation_ms}) {
        step.times.*part = 6;
        EXPECT_FALSE(step.counts_for_speed());
        step.times.*part = 1;
        EXPECT_TRUE(step.counts_for_speed()) << "polling for the end of a save counts";
    }
    StepSpeeds speeds;
    speeds.add(1, false, 1000, step_of(1e6));
    EXPECT_EQ(speeds.size(), 0U);
}

TEST(StepSpeeds, AnotherStartReplacesItsSteps) {
    StepSpeeds speeds = run_of(500, 0, 30);
    ASSERT_EQ(speeds.size(), 25U);
    speeds.add(20, false, 1000, step_of(900));
    EXPECT_EQ(speeds.size(), 14U) << "steps 6 to 19";
    for (int64_t step = 21; step <= 40; ++step) speeds.add(step, true, 1000, step_of(400));
    EXPECT_EQ(speeds.size(), 14U + 20U);
    EXPECT_EQ(speeds.median(), 2500);
}

TEST(StepSpeeds, OnlyTheNewestStepsAreKept) {
    StepSpeeds speeds = run_of(500, 0, 100);
    for (int64_t step = 101; step <= 125; ++step) speeds.add(step, true, 1000, step_of(250));
    EXPECT_EQ(speeds.size(), 50U);
    EXPECT_EQ(speeds.median(), 3000) << "half of them at 2000, half at 4000";
    speeds.add(126, true, 1000, step_of(250));
    EXPECT_EQ(speeds.median(), 4000);
}

class BaselineFile : public ::testing::Test {
  protected:
    /// The lines of steps of `ms` as MetricsWriter writes them.
    std::string lines(double ms, int64_t num_steps = 30) const {
        std::string text;
        for (int64_t step = 1; step <= num_steps; ++step) text += json_line(metrics(step, ms), job_) + "\n";
        return text;
    }
    static StepMetrics metrics(int64_t step, double ms) {
        StepMetrics metrics = sample_step(step);
        metrics.times = step_of(ms);
        return metrics;
    }
    std::filesystem::path file(const std::string& content) const {
        std::filesystem::create_directories(folder_ / "old");
        write_file(folder_ / "old" / "metrics.jsonl", content);
        return folder_ / "old" / "metrics.jsonl";
    }
    Baseline baseline(const std::filesystem::path& path, int64_t tokens = 4096, int rank = 0) const {
        return Baseline(path.string(), (folder_ / "own").string(), tokens, job_, rank);
    }
    /// What is wrong with the file.
    std::string error(const std::filesystem::path& path, int64_t tokens = 4096) const {
        try {
            baseline(path, tokens);
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::BadInput);
            return std::string(error.what()).substr(("metrics.baseline = " + path.string() + ": ").size());
        }
        return "";
    }

    ScratchFolder folder_;
    JobFigures job_ = sample_job();
};

TEST_F(BaselineFile, IsAFileOrItsFolder) {
    file(lines(2000));
    EXPECT_EQ(error(folder_ / "old" / "metrics.jsonl"), "");
    EXPECT_EQ(error(folder_ / "old"), "");
    const std::string remedy =
        " cannot be read: No such file or directory; name the metrics.jsonl or the dump folder of an earlier "
        "run";
    EXPECT_EQ(error(folder_ / "none"), (folder_ / "none").string() + remedy);
    std::filesystem::create_directories(folder_ / "empty");
    EXPECT_EQ(error(folder_ / "empty"), (folder_ / "empty" / "metrics.jsonl").string() + remedy);
    EXPECT_NO_THROW(baseline("")) << "no baseline";
    EXPECT_NO_THROW(baseline(folder_ / "none", 4096, /*rank=*/1)) << "only rank 0 reads";
}

TEST_F(BaselineFile, MustHaveSteps) {
    for (const char* content : {"", "no JSON\n", "{\"step\":1}\n", "[1]\n{}\n"}) {
        EXPECT_EQ(error(file(content)),
                  (folder_ / "old" / "metrics.jsonl").string() +
                      " has no line of a step; name the metrics.jsonl of an earlier run")
            << content;
    }
    EXPECT_EQ(error(file(lines(2000) + "{\"step\":31,\"lo")), "") << "a killed run leaves such a line";
}

TEST_F(BaselineFile, IsNotTheRunsOwn) {
    std::filesystem::create_directories(folder_ / "own");
    write_file(folder_ / "own" / "metrics.jsonl", lines(2000));
    EXPECT_EQ(error(folder_ / "own"),
              "this is the file that the run itself writes; name another run's, or a copy");
}

TEST_F(BaselineFile, MustBeOfTheSameWork) {
    const auto path = file(lines(2000));
    const std::string begin = "runs of different work cannot be compared: ";
    EXPECT_EQ(error(path, 8192), begin + "4096 tokens a step on 64 devices there, 8192 on 64 here");
    job_.num_devices = 32;
    EXPECT_EQ(error(path), begin + "4096 tokens a step on 64 devices there, 4096 on 32 here");
    EXPECT_EQ(error(path, 2048), "") << "the same for a device";
    job_ = sample_job();
    job_.flops_per_token.causal *= 1.001;
    EXPECT_EQ(error(path),
              begin + "another model or sequence length: 1e+12 FLOPs for a token there, 1.001e+12 here");
    job_ = sample_job(PeakSource::None);
    EXPECT_EQ(error(path), begin + "other devices: 1000 TFLOP/s there, an unknown peak here");
    EXPECT_EQ(error(file(lines(2000))), "") << "both unknown";
}

TEST_F(BaselineFile, GivesTheSpeedsOfItsSteps) {
    const auto path = file(lines(2000));
    Baseline of_run = baseline(path);
    EXPECT_EQ(of_run.tokens_per_second(), 2048) << "4096 tokens in 2 s";
    EXPECT_FALSE(baseline(path, 4096, /*rank=*/1).tokens_per_second());
    EXPECT_FALSE(baseline("").tokens_per_second());
    for (int64_t step = 1; step <= 30; ++step) of_run.add(metrics(step, 2500));
    const Comparison found = of_run.comparison();
    EXPECT_EQ(found.change, Change::Slower);
    EXPECT_EQ(found.text,
              "slower than the baseline: 1638.4 tokens/s, 20.0 % less than " + path.string() +
                  " with 2048 (medians of 25 and 25 steps; noise 2.0 %). compute takes 500 ms (26 %) "
                  "more a step");
}

TEST_F(BaselineFile, OfAnotherNumberOfDevicesIsScaled) {
    const auto path = file(lines(2000));
    job_.num_devices = 128;
    Baseline of_run = baseline(path, 8192);
    EXPECT_EQ(of_run.tokens_per_second(), 4096) << "8192 tokens in 2 s";
    for (int64_t step = 1; step <= 30; ++step) {
        StepMetrics twice = metrics(step, 2500);
        twice.tokens = 8192;
        of_run.add(twice);
    }
    const Comparison found = of_run.comparison();
    EXPECT_EQ(found.change, Change::None) << "no regression";
    EXPECT_NE(found.text.find("3276.8 tokens/s, 20.0 % less than " + path.string() +
                              " scaled from 64 to 128 devices with 4096"),
              std::string::npos)
        << found.text;
}

}  // namespace
}  // namespace argosy::observe
