#include "observe/metrics_writer.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"

namespace argosy::observe {

MetricsWriter::MetricsWriter(const MetricsOptions& options, const JobFigures& job, int rank)
    : options_(options), job_(job) {
    ARGOSY_CHECK(options.log_freq >= 1, "log_freq is {}", options.log_freq);
    if (rank == 0) file_.emplace((std::filesystem::path(options.dump_folder) / "metrics.jsonl").string());
}

void MetricsWriter::add_to_window(const StepMetrics& metrics) {
    ++num_written_;
    window_.newest = metrics;
    window_.num_steps = options_.num_steps;
    window_.window_tokens += metrics.tokens;
    window_.window_times += metrics.times;
    window_.window_peak_bytes = std::max(window_.window_peak_bytes, metrics.memory_peak_bytes);
    // The first step, with its warming up, is no measure of the others; later the newest 20 or so count most.
    const double weight = num_written_ <= 2 ? 1 : std::max(1.0 / static_cast<double>(num_written_ - 1), 0.05);
    step_seconds_ += weight * (metrics.times.total_ms / 1e3 - step_seconds_);
    window_.seconds_left = step_seconds_ * static_cast<double>(options_.num_steps - metrics.step);
}

void MetricsWriter::write(const StepMetrics& metrics) {
    if (!file_) return;
    file_->append_line(json_line(metrics, job_));
    add_to_window(metrics);
    if (num_written_ == 1 || metrics.step % options_.log_freq == 0 || metrics.step == options_.num_steps) {
        spdlog::info("{}", progress_line(window_, job_));
        window_ = {};
    }
}

}  // namespace argosy::observe
