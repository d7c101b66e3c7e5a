#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "observe/sample_metrics.h"

namespace argosy::observe {
namespace {

Progress sample_progress() {
    Progress progress;
    progress.newest = sample_step(7);
    progress.num_steps = 10000;
    progress.window_tokens = progress.newest.tokens;
    progress.window_times = progress.newest.times;
    progress.window_peak_bytes = progress.newest.memory.peak_bytes;
    progress.seconds_left = 3723;
    return progress;
}

TEST(ProgressLine, HasEveryFigure) {
    EXPECT_EQ(progress_line(sample_progress(), sample_job()),
              "step     7/10000  loss   3.2500  norm   0.5000  lr 3.00e-04    2.0k tokens/s  32.0000 TFLOP/s "
              " MFU   3.2%"
              "    1.500 GiB  data   5.0% compute  70.0% exposed  12.5% (dp_shard x cp  10.0%, tp   2.5%) "
              "optimizer  10.0%  ETA    1:02:03");
}

TEST(ProgressLine, NamesThePeakOfUtilisation) {
    EXPECT_NE(progress_line(sample_progress(), sample_job(PeakSource::MeasuredGemm)).find("of GEMM   3.2%"),
              std::string::npos);
    const std::string unknown = progress_line(sample_progress(), sample_job(PeakSource::None));
    EXPECT_EQ(unknown.find("MFU"), std::string::npos);
    EXPECT_EQ(unknown.find("of GEMM"), std::string::npos);
    EXPECT_NE(progress_line(sample_progress(), measured_job()).find("MFU   3.2%  of GEMM   4.0%"),
              std::string::npos);
}

TEST(PeakLine, HasTheDatasheetsPeakIfKnown) {
    EXPECT_EQ(peak_line(measured_job()),
              "matrix products reach 800 TFLOP/s here, 80.0% of the datasheet's 1000");
    EXPECT_EQ(peak_line(sample_job(PeakSource::MeasuredGemm)), "matrix products reach 1000 TFLOP/s here");
}

TEST(ProgressLine, CountsSkippedUpdatesAtItsEnd) {
    Progress progress = sample_progress();
    const std::string clean = progress_line(progress, sample_job());
    progress.newest.skipped_updates = 3;
    EXPECT_EQ(progress_line(progress, sample_job()), clean + "  skipped 3");
}

TEST(ProgressLine, HasTheMemoryThatAGpusAllocatorReserved) {
    Progress progress = sample_progress();
    const std::string without = progress_line(progress, sample_job());
    progress.newest.memory.allocator = {.peak_reserved_bytes = int64_t{7} << 28};
    progress.window_reserved_bytes = int64_t{2} << 30;  // measured in an earlier step
    const size_t place = without.find("GiB") + 3;
    const std::string with = without.substr(0, place) + " of   2.000 GiB reserved" + without.substr(place);
    EXPECT_EQ(progress_line(progress, sample_job()), with);
    progress.newest.memory.allocator->num_retries = 2;
    EXPECT_EQ(progress_line(progress, sample_job()), with + "  allocator retries 2");
}

TEST(ProgressLine, NamesASaveThatTookTime) {
    Progress progress = sample_progress();
    const std::string without = progress_line(progress, sample_job());
    progress.window_times.checkpoint_ms = 50;
    EXPECT_EQ(progress_line(progress, sample_job()), without.substr(0, without.find("  ETA")) +
                                                         " checkpoint   2.5%" +
                                                         without.substr(without.find("  ETA")));
}

TEST(LiveText, BeginsWithTheMostImportantFigures) {
    Progress progress = sample_progress();
    progress.step_seconds = 4;  // the mean of steps that took longer than the newest
    EXPECT_EQ(
        live_text(progress, sample_job()),
        "step     7/10000   0.1%  ETA    1:02:03  loss   3.2500    1.0k tokens/s  MFU   1.6%    1.500 GiB");
}

TEST(ProgressLine, StaysAlignedOverOrdersOfMagnitude) {
    const auto label_columns = [](const std::string& line) {
        std::vector<size_t> columns;
        for (const char* label : {"/10000", "loss", "norm", "lr", "tokens/s", "TFLOP/s", "MFU", "GiB", "data",
                                  "compute", "exposed", "optimizer", "ETA"}) {
            columns.push_back(line.find(label));
        }
        columns.push_back(line.size());
        return columns;
    };
    const auto expected = label_columns(progress_line(sample_progress(), sample_job()));
    for (const size_t column : expected) EXPECT_NE(column, std::string::npos);

    const auto expect_aligned = [&](const Progress& progress) {
        const std::string line = progress_line(progress, sample_job());
        EXPECT_EQ(label_columns(line), expected) << line;
    };
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double value :
         {0.0, 1e-30, 9.9999e-5, 1e-4, 0.01, 0.99999999, 9.99999999, 99.99996, 999.99996, 12345.678, 99999.99,
          999999.97, 99999999.6, 1e12, 1e38, 1e200, infinity, -infinity, -infinity * 0}) {
        Progress progress = sample_progress();
        progress.newest.loss = progress.newest.grad_norm = value;
        progress.seconds_left = value;
        expect_aligned(progress);
    }
    for (double tokens = 1; tokens < 1e13; tokens *= 3.7) {
        Progress progress = sample_progress();
        progress.window_tokens = static_cast<int64_t>(tokens);
        progress.window_peak_bytes = static_cast<int64_t>(tokens);
        expect_aligned(progress);
    }
    for (const int64_t step : {1, 10, 999, 10000}) {
        Progress progress = sample_progress();
        progress.newest.step = step;
        expect_aligned(progress);
    }
    Progress progress = sample_progress();
    for (const double total_ms : {0.0, 1.0}) {
        progress.window_times = {.total_ms = total_ms, .compute_ms = total_ms};
        progress.window_times.exposed_ms = {{"dp_shard x cp", 0.0}, {"tp", 0.0}};
        expect_aligned(progress);
    }
}

TEST(ProgressLine, OneRankHasNoAxes) {
    Progress progress = sample_progress();
    progress.window_times.exposed_ms.clear();
    EXPECT_NE(progress_line(progress, sample_job()).find("exposed   0.0% optimizer"), std::string::npos);
}

}  // namespace
}  // namespace argosy::observe
