// The learning rate as a function of the step: a linear warm-up, a constant part, a decay at the end.
#pragma once

#include <cstdint>
#include <optional>

namespace argosy::optim {

enum class DecayShape { Linear, Cosine, Sqrt };

struct LrScheduleOptions {
    double peak = 8e-4;
    int64_t warmup_steps = 200;
    int64_t total_steps = 10000;
    std::optional<double>
        decay_ratio;  // share of total_steps that decays; none: all after the warm-up; 0: none of it
    DecayShape shape = DecayShape::Linear;
    double min_factor = 0;  // of the peak, at the end
};

class LrSchedule {
  public:
    explicit LrSchedule(const LrScheduleOptions& options);

    /// The rate of step 1, 2, ... The warm-up would reach the peak at step warmup_steps + 1; the decay
    /// reaches its end with the step after the last, so that no step is wasted on a rate of zero.
    double at_step(int64_t step) const;

  private:
    LrScheduleOptions options_;
    int64_t decay_steps_;
};

}  // namespace argosy::optim
