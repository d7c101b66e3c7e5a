#include "observe/metrics_writer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "observe/step_lines.h"

namespace argosy::observe {

MetricsWriter::MetricsWriter(const MetricsOptions& options, const JobFigures& job, int rank)
    : options_(options), job_(job) {
    ARGOSY_CHECK(options.log_freq >= 1, "log_freq is {}", options.log_freq);
    if (rank == 0) {
        if (options.last_own_step) set_aside_steps_after(*options.last_own_step, path());
        earlier_step_ = last_step(path());
        if (options.last_own_step) {
            log_missing_steps(path(), earlier_step_.value_or(0), *options.last_own_step);
            earlier_step_.reset();  // no line is of another run
        }
        file_.emplace(path().string());
        if (options.tensorboard_folder) {
            events_.emplace(
                (std::filesystem::path(options.dump_folder) / *options.tensorboard_folder).string());
        }
    }
}

void MetricsWriter::end() {
    try {
        if (window_.num_steps > 0) end_window();
    } catch (const Error& error) {
        spdlog::warn("{}", error.what());
    }
}

MetricsWriter::~MetricsWriter() { end(); }

std::filesystem::path MetricsWriter::path() const {
    return std::filesystem::path(options_.dump_folder) / "metrics.jsonl";
}

void MetricsWriter::add_to_window(const StepMetrics& metrics) {
    ++num_written_;
    window_.newest = metrics;
    window_.final_step = options_.final_step;
    ++window_.num_steps;
    window_.tokens += metrics.tokens;
    window_.times += metrics.times;
    window_.peak_bytes = std::max(window_.peak_bytes, metrics.memory.peak_bytes);
    if (metrics.memory.allocator) {
        window_.reserved_bytes =
            std::max(window_.reserved_bytes.value_or(0), metrics.memory.allocator->peak_reserved_bytes);
    }
    // The second step's time replaces the first's, which includes warm-up. Later the mean covers about the
    // newest 20 steps.
    const double weight = num_written_ <= 2 ? 1 : std::max(1.0 / static_cast<double>(num_written_ - 1), 0.05);
    step_seconds_ += weight * (metrics.times.total_ms / 1e3 - step_seconds_);
    window_.seconds_left = std::min(metrics.seconds_allowed,
                                    step_seconds_ * static_cast<double>(options_.final_step - metrics.step));
}

void MetricsWriter::end_window() {
    const StepWindow window = std::exchange(window_, {});  // also if writing fails
    spdlog::info("{}", log_line(window, job_));
    if (events_) events_->write(window.newest.step, tensorboard_scalars(window, job_));
}

/// Each rank warns at most once.
void MetricsWriter::warn_of_retries(const StepMetrics& metrics) {
    if (warned_of_retries_ || !metrics.memory.allocator || metrics.memory.allocator->num_retries == 0) return;
    warned_of_retries_ = true;
    spdlog::warn(
        "by step {} the GPU's memory was full {} times, with {:.3f} GiB reserved and at most {:.3f} GiB of "
        "tensors: each time the allocator released all unused memory, which waits for the GPU, and tried "
        "again. This slows the steps down; lower training.local_batch_size or set activation_checkpoint.mode "
        "to full, and keep expandable_segments:True in PYTORCH_ALLOC_CONF if that is set",
        metrics.step, metrics.memory.allocator->num_retries,
        gibibytes(metrics.memory.allocator->peak_reserved_bytes), gibibytes(metrics.memory.peak_bytes));
}

void MetricsWriter::report_validation(const StepMetrics& metrics) {
    spdlog::info("{}", validation_line(metrics, options_.final_step));
    if (events_) events_->write(metrics.step, validation_scalars(*metrics.validation));
}

void MetricsWriter::report_evaluation(const StepMetrics& metrics) {
    for (const TaskMetrics& task : metrics.evaluation) {
        spdlog::info("{}", evaluation_line(metrics, task, options_.final_step));
    }
    if (events_) events_->write(metrics.step, evaluation_scalars(metrics.evaluation));
}

void MetricsWriter::write(const StepMetrics& metrics) {
    warn_of_retries(metrics);
    if (!file_) return;
    const bool has_log_line = num_written_ == 0 || options_.ends_window(metrics.step);
    file_->append_line(json_line(metrics, job_, has_log_line));
    if (num_written_ == 0 && earlier_step_) log_continuation(path(), *earlier_step_, metrics.step);
    add_to_window(metrics);
    if (metrics.validation) report_validation(metrics);
    if (!metrics.evaluation.empty()) report_evaluation(metrics);
    if (has_log_line) end_window();
}

}  // namespace argosy::observe
