// The lines that tell people how training goes. Every column keeps its width over orders of magnitude, so
// that lines of one run stand under each other.
#pragma once

#include <optional>
#include <string>

#include "observe/metrics.h"

namespace argosy::observe {

/// What a line speaks of: its newest step, and the mean over the steps since the line before.
struct Progress {
    StepMetrics newest;
    int64_t num_steps = 0;                              // of the whole run
    int64_t window_steps = 0;                           // since the line before, the newest included
    int64_t window_tokens = 0;                          // of all of them
    StepTimes window_times;                             // likewise
    int64_t window_peak_bytes = 0;                      // the highest of them
    std::optional<int64_t> window_reserved_bytes = {};  // likewise; none on a processor
    double step_seconds = 0;                            // a running mean: of steps alone, of later ones more
    double seconds_left = 0;                            // until num_steps
};

/// What products were measured to reach, beside the datasheet's where that is known. REQUIRES: they were.
std::string peak_line(const JobFigures& job);

/// step n/N, loss, gradient norm, learning rate; over the window: tokens/s of the job, model TFLOP/s per
/// device (causal), its share of the datasheet's peak ("MFU") and of a measured one ("of GEMM") as far as
/// they are known, highest tensor memory, on a GPU what was reserved for it, shares of the wall time, that of
/// exposed communication by axes, and of a save if there was one; time to go; at the end the allocator's
/// retries and skipped updates, if any.
std::string progress_line(const Progress& progress, const JobFigures& job);

/// For a line that is rewritten: step n/N and its percentage, time to go, loss; at the running mean of a
/// step's time tokens/s and utilisation; tensor memory. What matters most comes first: a narrow terminal cuts
/// the end.
std::string live_text(const Progress& progress, const JobFigures& job);

}  // namespace argosy::observe
