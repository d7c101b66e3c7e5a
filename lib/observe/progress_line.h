// Progress lines for people. Every column keeps its width over orders of magnitude, so that the lines of a
// run align.
#pragma once

#include <optional>
#include <string>

#include "observe/metrics.h"

namespace argosy::observe {

/// The data of a line: its newest step, and the mean over the window of steps since the previous line.
struct Progress {
    StepMetrics newest;
    int64_t num_steps = 0;                              // of the whole run
    int64_t window_steps = 0;                           // since the previous line, including the newest
    int64_t window_tokens = 0;                          // in these steps
    StepTimes window_times;                             // sums over these steps
    int64_t window_peak_bytes = 0;                      // maximum over these steps
    std::optional<int64_t> window_reserved_bytes = {};  // the same; none on a CPU
    double step_seconds = 0;                            // running mean of step times; later steps weigh more
    double seconds_left = 0;                            // until num_steps
};

/// The measured peak of matrix products, beside the datasheet's if known. REQUIRES: a measured peak.
std::string peak_line(const JobFigures& job);

/// The log line: step n/N, loss, gradient norm, learning rate; over the window: tokens/s of the job, model
/// TFLOP/s per device (causal), the share of the datasheet's peak ("MFU") and of the measured one ("of GEMM")
/// if known, peak tensor memory, on a GPU peak reserved memory, shares of the wall time (exposed
/// communication by mesh axis, a save only if there was one); the ETA; last the allocator's retries and the
/// skipped updates, if any.
std::string progress_line(const Progress& progress, const JobFigures& job);

/// The live line: step n/N and its percentage, time to go, loss, tokens/s and utilisation at the running mean
/// of step times, tensor memory. The important parts come first, because a narrow terminal cuts the end.
std::string live_text(const Progress& progress, const JobFigures& job);

}  // namespace argosy::observe
