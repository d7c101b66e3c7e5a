// Brings a run's metrics to <dump_folder>/metrics.jsonl, a line a step, and to people, a line on stderr now
// and then. Rank 0 writes; on other ranks a writer does nothing, so the loop needs no condition.
#pragma once

#include <optional>
#include <string>

#include "observe/append_file.h"
#include "observe/metrics.h"
#include "observe/progress_line.h"

namespace argosy::observe {

struct MetricsOptions {
    std::string dump_folder;
    int64_t log_freq = 10;  // steps between lines for people; the first and the last step always have one
    int64_t num_steps = 0;  // at which the run ends
};

class MetricsWriter {
  public:
    /// Makes the folder and opens the file; a restarted run goes on at its end. Throws RunError.
    MetricsWriter(const MetricsOptions& options, const JobFigures& job, int rank);

    /// After each step; the line has left the process when this returns. Throws RunError when it cannot be
    /// written; the file then ends with the step before.
    void write(const StepMetrics& metrics);

  private:
    void add_to_window(const StepMetrics& metrics);

    MetricsOptions options_;
    JobFigures job_;
    std::optional<AppendFile> file_;  // on rank 0
    int64_t num_written_ = 0;         // steps of this run so far
    double step_seconds_ = 0;         // running mean, for the time to go: of steps alone
    Progress window_;                 // the steps since the last line for people
};

}  // namespace argosy::observe
