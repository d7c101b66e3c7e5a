#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "observe/sample_metrics.h"

namespace argosy::observe {
namespace {

StepWindow sample_window() {
    StepWindow window;
    window.newest = sample_step(7);
    window.final_step = 10000;
    window.tokens = window.newest.tokens;
    window.times = window.newest.times;
    window.peak_bytes = window.newest.memory.peak_bytes;
    window.seconds_left = 3723;
    return window;
}

StepWindow sample_window_of_one_rank() {
    StepWindow window = sample_window();
    window.times.exposed_ms.clear();
    return window;
}

TEST(LogLine, HasTheMostImportantFigures) {
    EXPECT_EQ(log_line(sample_window(), sample_job()),
              "step     7/10000  loss 3.2500  norm 0.5000   2.0k tok/s  MFU   3.2%  1.50 GiB  exposed  12%  "
              "ETA 1:02:03");
    EXPECT_EQ(log_line(sample_window_of_one_rank(), sample_job()),
              "step     7/10000  loss 3.2500  norm 0.5000  lr 3.00e-04   2.0k tok/s  MFU   3.2%  1.50 GiB  "
              "ETA 1:02:03");
}

TEST(LogLine, FitsATerminalOf120Columns) {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const int64_t final_step : {int64_t{10}, int64_t{1000}, int64_t{5000000}, int64_t{1} << 62}) {
        for (const JobFigures& job : {sample_job(PeakSource::None), sample_job(PeakSource::MeasuredGemm),
                                      sample_job(PeakSource::Datasheet), measured_job()}) {
            for (const double value :
                 {1e-30, 0.5, 123.456, 1e20, 1e300, 0.0, -infinity, infinity, -infinity * 0}) {
                StepWindow window = sample_window();
                window.newest.step = window.final_step = final_step;
                window.newest.loss = window.newest.grad_norm = window.newest.lr = value;
                window.seconds_left = value;
                window.newest.memory.allocator = {.num_retries = 12};
                window.peak_bytes = int64_t{140} << 30;
                window.newest.skipped_updates = 1234;
                const std::string line = log_line(window, job);
                EXPECT_LE(std::string("12:00:00 I [0] ").size() + line.size(), 120U) << line;
                EXPECT_TRUE(final_step > 5000000 || line.find("  ETA ") != std::string::npos) << line;
            }
        }
    }
}

TEST(LogLine, LongRunsKeepTheShareOfExposedCommunicationBeforeMemory) {
    StepWindow window = sample_window();
    window.final_step = 99999;
    EXPECT_TRUE(log_line(window, sample_job()).ends_with("%  1.50 GiB  exposed  12%  ETA 1:02:03"));
    window.final_step = 100000;
    EXPECT_TRUE(log_line(window, sample_job()).ends_with("%  exposed  12%  ETA 1:02:03"));
}

TEST(LogLine, TheTimeLeftKeepsItsWidth) {
    const auto left = [](double seconds) {
        StepWindow window = sample_window();
        window.seconds_left = seconds;
        const std::string line = log_line(window, sample_job());
        return line.substr(line.find("ETA"));
    };
    EXPECT_EQ(left(0), "ETA 0:00:00");
    EXPECT_EQ(left(35999), "ETA 9:59:59");
    EXPECT_EQ(left(36000), "ETA 10h 00m");
    EXPECT_EQ(left(359999), "ETA 99h 59m");
    EXPECT_EQ(left(360000), "ETA  4d 04h");
    EXPECT_EQ(left(100 * 86400 - 1), "ETA 99d 23h");
    EXPECT_EQ(left(100 * 86400), "ETA       -");
}

TEST(LogLine, NamesThePeakOfUtilisation) {
    EXPECT_NE(log_line(sample_window(), sample_job(PeakSource::MeasuredGemm)).find("of GEMM   3.2%"),
              std::string::npos);
    const std::string unknown = log_line(sample_window(), sample_job(PeakSource::None));
    EXPECT_EQ(unknown.find("MFU"), std::string::npos);
    EXPECT_EQ(unknown.find("of GEMM"), std::string::npos);
    EXPECT_NE(unknown.find("  32.00 TFLOP/s"), std::string::npos) << unknown;
}

TEST(PeakLine, HasTheDatasheetsPeakIfKnown) {
    EXPECT_EQ(peak_line(measured_job()),
              "matrix products reach 800 TFLOP/s here, 80.0% of the datasheet's 1000");
    EXPECT_EQ(peak_line(sample_job(PeakSource::MeasuredGemm)), "matrix products reach 1000 TFLOP/s here");
}

TEST(LogLine, CountsSkippedUpdatesAndRetriesBeforeMostOtherFigures) {
    StepWindow window = sample_window();
    window.newest.skipped_updates = 3;
    EXPECT_TRUE(log_line(window, sample_job()).ends_with("MFU   3.2%  exposed  12%  skipped 3  ETA 1:02:03"));
    window.newest.memory.allocator = {.num_retries = 2};
    EXPECT_TRUE(log_line(window, sample_job()).ends_with("  MFU   3.2%  retries 2  skipped 3  ETA 1:02:03"));
}

TEST(LogLine, HasTheLoadOfTheWorstLayer) {
    StepWindow window = sample_window();
    window.newest.experts = sample_experts();
    EXPECT_TRUE(log_line(window, sample_job()).ends_with("  load 2.00  ETA 1:02:03"));
}

TEST(LogLine, AlwaysSaysThatExpertsTakeTurns) {
    StepWindow window = sample_window();
    window.newest.experts = sample_experts();
    window.newest.experts->forced_balance = true;
    EXPECT_TRUE(log_line(window, sample_job()).ends_with("  FORCED BALANCE  load 2.00  ETA 1:02:03"));
    window.newest.step = window.final_step = int64_t{1} << 62;
    EXPECT_NE(log_line(window, sample_job()).find("  FORCED BALANCE"), std::string::npos);
}

TEST(LogLine, StaysAlignedOverOrdersOfMagnitude) {
    const auto label_columns = [](const std::string& line) {
        std::vector<size_t> columns;
        for (const char* label : {"/10000", "loss", "norm", "tok/s", "MFU", "GiB", "exposed", "ETA"}) {
            columns.push_back(line.find(label));
        }
        columns.push_back(line.size());
        return columns;
    };
    const auto expected = label_columns(log_line(sample_window(), sample_job()));
    for (const size_t column : expected) EXPECT_NE(column, std::string::npos);

    const auto expect_aligned = [&](const StepWindow& window) {
        const std::string line = log_line(window, sample_job());
        EXPECT_EQ(label_columns(line), expected) << line;
    };
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double value :
         {0.0, 1e-30, 9.9999e-5, 1e-4, 0.01, 0.99999999, 9.99999999, 99.99996, 999.99996, 12345.678, 99999.99,
          999999.97, 99999999.6, 1e12, 1e38, 1e200, infinity, -infinity, -infinity * 0}) {
        StepWindow window = sample_window();
        window.newest.loss = window.newest.grad_norm = value;
        window.seconds_left = value;
        expect_aligned(window);
    }
    for (double tokens = 1; tokens < 1e13; tokens *= 3.7) {
        StepWindow window = sample_window();
        window.tokens = static_cast<int64_t>(tokens);
        window.peak_bytes = static_cast<int64_t>(tokens);
        expect_aligned(window);
    }
    for (const int64_t step : {1, 10, 999, 10000}) {
        StepWindow window = sample_window();
        window.newest.step = step;
        expect_aligned(window);
    }
    StepWindow window = sample_window();
    for (const double total_ms : {0.0, 1.0}) {
        window.times = {.total_ms = total_ms, .compute_ms = total_ms};
        window.times.exposed_ms = {{"dp_shard x cp", 0.0}, {"tp", 0.0}};
        expect_aligned(window);
    }
}

}  // namespace
}  // namespace argosy::observe
