// Writes each step whose update was skipped, with the step's samples, to <dump_folder>/skipped_updates.jsonl
// and to the log. Rank 0 writes; on other ranks nothing happens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "observe/append_file.h"
#include "observe/metrics_writer.h"

namespace argosy::observe {

struct SkippedUpdate {
    int64_t step = 0;
    std::string reason;  // for people
    double loss = 0;
    double grad_norm = 0;
    double loss_zscore = 0;  // standard deviations above the mean of earlier updates; NaN: unknown
    double grad_norm_zscore = 0;
    /// The samples of the whole job. Sample i is tokens [i*seq_len, (i+1)*seq_len] of the file.
    std::vector<int64_t> samples;
    int64_t samples_per_data_rank = 0;  // data-parallel rank r trained on the r-th block of this many samples
};

/// One line of the file, without its newline: a JSON object with the keys step, cause ("nonfinite" or
/// "spike"), loss, grad_norm, loss_zscore, grad_norm_zscore, samples_per_data_rank, samples, in this order. A
/// number that is unknown or not finite is null.
std::string json_line(const SkippedUpdate& update);

class SkippedUpdates {
  public:
    /// Moves lines of steps after metrics.last_own_step to skipped_updates.jsonl.aside.
    SkippedUpdates(const MetricsOptions& metrics, int rank);

    /// The first call creates the file. Throws RunError if the file cannot be written.
    void write(const SkippedUpdate& update);

  private:
    std::filesystem::path path_;
    int rank_;
    std::optional<AppendFile> file_;
};

}  // namespace argosy::observe
