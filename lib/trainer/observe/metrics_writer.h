// Writes a run's metrics to <dump_folder>/metrics.jsonl, one line per step, and shows them to people: a log
// line every log_freq steps, and TensorBoard's curves at the same steps. Rank 0 writes. Every rank needs a
// MetricsWriter, because each rank warns of its own GPU's memory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "observe/append_file.h"
#include "observe/metrics.h"
#include "observe/tensorboard.h"

namespace argosy::observe {

/// The folder of the files of a run's metrics, and the steps that end their windows: those with a log line.
struct MetricsOptions {
    std::string dump_folder;
    int64_t log_freq = 10;   // steps between log lines; the first and the last step always have a line
    int64_t final_step = 0;  // the run's last step
    /// Whether a window ends with `step`, which is not the first step of this start: the first step is a
    /// window of its own.
    bool ends_window(int64_t step) const { return step % log_freq == 0 || step == final_step; }
    std::optional<std::string> tensorboard_folder;  // within dump_folder; none: no TensorBoard
    /// Existing lines up to this step belong to this run; none: not known.
    std::optional<int64_t> last_own_step = {};
};

class MetricsWriter {
  public:
    /// Makes the folder and opens the files. Moves lines of metrics.jsonl after last_own_step to
    /// metrics.jsonl.aside. If last_own_step is not known, the writer appends; the first write() then logs
    /// how the steps continue (log_continuation). Throws RunError.
    MetricsWriter(const MetricsOptions& options, const JobFigures& job, int rank);

    MetricsWriter(const MetricsWriter&) = delete;
    /// Calls end(), if the run did not come to it.
    ~MetricsWriter();

    /// REQUIRES: called once after each step. The line has left the process when write() returns. Throws
    /// RunError if the line cannot be written; the file then ends with the previous step. A rank logs one
    /// warning, at the first step by which its GPU allocator had to retry.
    void write(const StepMetrics& metrics);

    /// Writes the log line of the last steps, wherever the run stopped. Nothing is written after it. Only
    /// warns of an error, because the run's last step is saved after it.
    void end();

  private:
    std::filesystem::path path() const;
    void add_to_window(const StepMetrics& metrics);
    void end_window();
    void warn_of_retries(const StepMetrics& metrics);
    void report_validation(const StepMetrics& metrics);
    void report_evaluation(const StepMetrics& metrics);

    MetricsOptions options_;
    JobFigures job_;
    std::optional<int64_t> earlier_step_;  // the last step in the file, if it may be of another run
    std::optional<AppendFile> file_;       // on rank 0
    std::optional<EventFile> events_;      // on rank 0, if enabled
    bool warned_of_retries_ = false;
    int64_t num_written_ = 0;  // steps of this run so far
    double step_seconds_ = 0;  // running mean
    StepWindow window_;        // the steps since the last log line
};

}  // namespace argosy::observe
