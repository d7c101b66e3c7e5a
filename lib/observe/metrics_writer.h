// Brings a run's metrics to <dump_folder>/metrics.jsonl, a line a step, and to people: a line in the log now
// and then, TensorBoard's curves at the same steps, and on a terminal a line that is rewritten as it goes.
// Rank 0 writes; other ranks only keep their log out of the rewritten line, so the loop needs no condition.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/live_line.h"
#include "observe/append_file.h"
#include "observe/event_file.h"
#include "observe/metrics.h"
#include "observe/progress_line.h"

namespace argosy::observe {

struct MetricsOptions {
    std::string dump_folder;
    int64_t log_freq = 10;  // steps between lines for people; the first and num_steps always have one
    int64_t num_steps = 0;  // at which the run ends
    std::optional<std::string> tensorboard_folder;  // within dump_folder; none: no TensorBoard
    bool live_line = false;
    /// Up to which step the lines that are there are this run's; none: that is not known.
    std::optional<int64_t> last_own_step = {};
    int columns = 80;  // of a terminal that cannot be asked
};

class MetricsWriter {
  public:
    /// Makes the folder and opens the files; lines of metrics.jsonl that are not this run's are set aside
    /// where that is known; else it goes on at the file's end, and the log says so. Throws RunError.
    MetricsWriter(const MetricsOptions& options, const JobFigures& job, int rank);

    MetricsWriter(const MetricsWriter&) = delete;
    /// Wherever the run stopped, its last steps get their line for people too.
    ~MetricsWriter();

    /// After each step; the first whose GPU had to search for memory earns a warning, on its rank. What is
    /// written has left the process when this returns. Throws RunError when it cannot be written; the file
    /// then ends with the step before.
    void write(const StepMetrics& metrics);

  private:
    std::filesystem::path path() const;
    void add_to_window(const StepMetrics& metrics);
    void end_window();
    void warn_of_retries(const StepMetrics& metrics);

    MetricsOptions options_;
    JobFigures job_;
    std::optional<int64_t> earlier_step_;  // the last one of a run before
    std::optional<AppendFile> file_;       // on rank 0
    std::optional<EventFile> events_;      // on rank 0, when it is wanted
    std::optional<LiveLine> live_line_;    // when it is wanted
    bool warned_of_retries_ = false;
    int64_t num_written_ = 0;  // steps of this run so far
    double step_seconds_ = 0;  // running mean
    Progress window_;          // the steps since the last line for people
};

}  // namespace argosy::observe
