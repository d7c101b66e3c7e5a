// Compares a run's speed with an earlier run's, to find regressions (metrics.baseline). FORMAT.md defines the
// speed of a run and the noise of a comparison.
//
// The earlier run may have had another number of devices with the same work for each. The speeds of that
// run are then scaled in proportion to the number of devices, and a slower run is no regression.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "observe/diagnosis.h"
#include "observe/metrics.h"

namespace argosy::observe {

/// The newest steps that count for a run's speed.
class StepSpeeds {
  public:
    /// Takes the next step. A step that is not after the one before it begins another start of the run, which
    /// replaces the steps from that one on.
    void add(int64_t step, bool counts, int64_t tokens, const StepTimes& times);

    /// The number of steps that count.
    size_t size() const { return steps_.size(); }
    /// Tokens per second. REQUIRES: size() > 0.
    double median() const;
    double standard_error() const;
    /// The median of each part of a step.
    StepParts parts() const;

  private:
    struct Step {
        int64_t step;
        double tokens_per_second;
        StepTimes times;
    };
    std::vector<double> speeds() const;

    std::deque<Step> steps_;
};

enum class Change { TooFewSteps, None, Slower };
struct Comparison {
    Change change = Change::None;
    std::string text;  // with both speeds
};
/// `name`: that of the earlier run.
Comparison compare(const StepSpeeds& earlier, const StepSpeeds& run, const std::string& name);

/// The earlier run on rank 0, and this run's steps.
class Baseline {
  public:
    /// `path`: a metrics.jsonl or the dump folder of an earlier run; empty: there is none, and the functions
    /// do nothing. `own_folder`: the dump folder of this run, whose steps have `tokens` tokens. Rank 0 throws
    /// an Error of ExitCode::BadInput if the file cannot be read, is this run's own, or is of a run with
    /// another model, sequence length, number of tokens of a step and device, or kind of devices.
    Baseline(const std::string& path, const std::string& own_folder, int64_t tokens, const JobFigures& job,
             int rank);

    /// Takes the next step.
    void add(const StepMetrics& step);

    /// The median of the earlier run's steps that count, scaled to this run's devices; none if there are
    /// none, and on ranks other than 0.
    std::optional<double> tokens_per_second() const { return earlier_tokens_per_second_; }

    /// REQUIRES: rank 0, and a baseline.
    Comparison comparison() const;

    /// COLLECTIVE over `control`. Logs the comparison. Returns CheckFailed on all ranks if the run is slower,
    /// else Done.
    ExitCode compare_run(comm::Communicator& control) const;

  private:
    std::string path_;
    int num_devices_;
    int earlier_devices_ = 0;
    std::optional<StepSpeeds> earlier_;  // on rank 0
    std::optional<double> earlier_tokens_per_second_;
    StepSpeeds run_;
};

}  // namespace argosy::observe
