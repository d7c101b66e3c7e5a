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

TEST(LogLine, HasEveryFigure) {
    EXPECT_EQ(log_line(sample_window(), sample_job()),
              "step     7/10000  loss   3.2500  norm   0.5000  lr 3.00e-04    2.0k tokens/s  32.0000 TFLOP/s "
              " MFU   3.2%"
              "    1.500 GiB  data   5.0% compute  70.0% exposed  12.5% (dp_shard x cp  10.0%, tp   2.5%) "
              "optimizer  10.0%  ETA    1:02:03");
}

TEST(LogLine, NamesThePeakOfUtilisation) {
    EXPECT_NE(log_line(sample_window(), sample_job(PeakSource::MeasuredGemm)).find("of GEMM   3.2%"),
              std::string::npos);
    const std::string unknown = log_line(sample_window(), sample_job(PeakSource::None));
    EXPECT_EQ(unknown.find("MFU"), std::string::npos);
    EXPECT_EQ(unknown.find("of GEMM"), std::string::npos);
    EXPECT_NE(log_line(sample_window(), measured_job()).find("MFU   3.2%  of GEMM   4.0%"),
              std::string::npos);
}

TEST(PeakLine, HasTheDatasheetsPeakIfKnown) {
    EXPECT_EQ(peak_line(measured_job()),
              "matrix products reach 800 TFLOP/s here, 80.0% of the datasheet's 1000");
    EXPECT_EQ(peak_line(sample_job(PeakSource::MeasuredGemm)), "matrix products reach 1000 TFLOP/s here");
}

TEST(LogLine, CountsSkippedUpdatesAtItsEnd) {
    StepWindow window = sample_window();
    const std::string clean = log_line(window, sample_job());
    window.newest.skipped_updates = 3;
    EXPECT_EQ(log_line(window, sample_job()), clean + "  skipped 3");
}

TEST(LogLine, HasTheMemoryThatAGpusAllocatorReserved) {
    StepWindow window = sample_window();
    const std::string without = log_line(window, sample_job());
    window.newest.memory.allocator = {.peak_reserved_bytes = int64_t{7} << 28};
    window.reserved_bytes = int64_t{2} << 30;  // measured in an earlier step
    const size_t place = without.find("GiB") + 3;
    const std::string with = without.substr(0, place) + " of   2.000 GiB reserved" + without.substr(place);
    EXPECT_EQ(log_line(window, sample_job()), with);
    window.newest.memory.allocator->num_retries = 2;
    EXPECT_EQ(log_line(window, sample_job()), with + "  allocator retries 2");
}

TEST(LogLine, NamesASaveThatTookTime) {
    StepWindow window = sample_window();
    const std::string without = log_line(window, sample_job());
    window.times.checkpoint_ms = 50;
    EXPECT_EQ(log_line(window, sample_job()), without.substr(0, without.find("  ETA")) +
                                                  " checkpoint   2.5%" +
                                                  without.substr(without.find("  ETA")));
}

TEST(LiveText, BeginsWithTheMostImportantFigures) {
    StepWindow window = sample_window();
    window.step_seconds = 4;  // the mean of steps that took longer than the newest
    EXPECT_EQ(
        live_text(window, sample_job()),
        "step     7/10000   0.1%  ETA    1:02:03  loss   3.2500    1.0k tokens/s  MFU   1.6%    1.500 GiB");
}

TEST(LogLine, StaysAlignedOverOrdersOfMagnitude) {
    const auto label_columns = [](const std::string& line) {
        std::vector<size_t> columns;
        for (const char* label : {"/10000", "loss", "norm", "lr", "tokens/s", "TFLOP/s", "MFU", "GiB", "data",
                                  "compute", "exposed", "optimizer", "ETA"}) {
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

TEST(LogLine, ASlowTypeHasAUtilisationOfItsOwn) {
    JobFigures job = sample_job();
    EXPECT_EQ(log_line(sample_window(), job).find(" of float32"), std::string::npos);
    job.number_types[0] = "float32";
    job.compute_datasheet.flops_per_second /= 10;
    const std::string line = log_line(sample_window(), job);
    EXPECT_LT(line.find("  MFU "), line.find("%  of float32 "));
}

TEST(LogLine, OneRankHasNoAxes) {
    StepWindow window = sample_window();
    window.times.bubble_ms = window.times.total_ms / 8;
    EXPECT_NE(log_line(window, sample_job()).find(" bubble  12.5% optimizer"), std::string::npos);
    window.times.bubble_ms.reset();
    window.times.exposed_ms.clear();
    EXPECT_NE(log_line(window, sample_job()).find("exposed   0.0% optimizer"), std::string::npos);
}

}  // namespace
}  // namespace argosy::observe
