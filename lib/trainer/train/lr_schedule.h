// The learning rate as a function of the step: linear warm-up, constant part, decay at the end.
#pragma once

#include <cstdint>
#include <optional>

namespace argosy::train {

enum class DecayShape { Linear, Cosine, Sqrt };

struct LrScheduleOptions {
    double peak = 8e-4;
    int64_t warmup_steps = 200;
    int64_t total_steps = 10000;
    /// Share of total_steps with decay. None: all steps after the warm-up; 0: no decay.
    std::optional<double> decay_ratio;
    DecayShape shape = DecayShape::Linear;
    double min_factor = 0;  // the rate of the steps after a decay, as a share of the peak
};

/// The steps that decay_ratio asks for; the warm-up may leave fewer.
int64_t requested_decay_steps(const LrScheduleOptions& options);

class LrSchedule {
  public:
    /// The version of this function of the step, which checkpoints record. In version 1 the warm-up divided
    /// by warmup_steps + 1.
    static constexpr int kVersion = 2;

    explicit LrSchedule(const LrScheduleOptions& options);

    int64_t decay_steps() const { return decay_steps_; }

    /// The rate of step 1, 2, ..., as in TorchTitan since June 2025. The warm-up reaches the peak at step
    /// warmup_steps. The decay would end one step after the last step, so that no step has a rate of zero.
    double at_step(int64_t step) const;

  private:
    LrScheduleOptions options_;
    int64_t decay_steps_;
};

}  // namespace argosy::train
