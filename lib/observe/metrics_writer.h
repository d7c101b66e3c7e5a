// Writes a run's metrics to <dump_folder>/metrics.jsonl, one line per step, and shows them to people: a log
// line every log_freq steps, TensorBoard's curves at the same steps, and on a terminal a live line that is
// rewritten. Rank 0 writes. Other ranks only keep their log apart from the live line, so the training loop
// calls it on every rank.
#pragma once

#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>

#include "base/progress.h"
#include "observe/append_file.h"
#include "observe/metrics.h"
#include "observe/tensorboard.h"

namespace argosy::observe {

struct MetricsOptions {
    std::string dump_folder;
    int64_t log_freq = 10;  // steps between log lines; the first step and num_steps always have one
    int64_t num_steps = 0;  // the run's last step
    std::optional<std::string> tensorboard_folder;  // within dump_folder; none: no TensorBoard
    bool live_line = false;
    /// Existing lines up to this step belong to this run; none: unknown.
    std::optional<int64_t> last_own_step = {};
    int columns = 80;  // the width of a terminal that cannot be queried
};

class MetricsWriter {
  public:
    /// Makes the folder and opens the files. Lines of metrics.jsonl after last_own_step are moved to
    /// metrics.jsonl.aside; if last_own_step is unknown, the writer appends and logs that. Throws RunError.
    MetricsWriter(const MetricsOptions& options, const JobFigures& job, int rank);

    MetricsWriter(const MetricsWriter&) = delete;
    /// Writes the log line of the last steps, wherever the run stopped.
    ~MetricsWriter();

    /// Call it after each step. A rank warns at the first step whose GPU allocator had to retry. The line has
    /// left the process when this returns. Throws RunError when it cannot be written; the file then ends with
    /// the previous step.
    void write(const StepMetrics& metrics);

  private:
    std::filesystem::path path() const;
    void add_to_window(const StepMetrics& metrics);
    void end_window();
    void warn_of_retries(const StepMetrics& metrics);

    MetricsOptions options_;
    JobFigures job_;
    std::optional<int64_t> earlier_step_;  // the last step of an earlier run
    std::optional<AppendFile> file_;       // on rank 0
    std::optional<EventFile> events_;      // on rank 0, if enabled
    std::optional<LiveLine> live_line_;    // if enabled
    bool warned_of_retries_ = false;
    int64_t num_written_ = 0;  // steps of this run so far
    double step_seconds_ = 0;  // running mean
    Progress window_;          // the steps since the last log line
};

// Numbers in the JSON lines that other tools read.

using Json = nlohmann::ordered_json;

/// Null for infinity and NaN, which JSON lacks, and for an unknown value.
inline Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
inline Json json_number(const std::optional<double>& value) {
    return value ? json_number(*value) : Json(nullptr);
}

}  // namespace argosy::observe
