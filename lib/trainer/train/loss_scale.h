// Dynamic loss scaling for gradients in fp16, whose smallest numbers would otherwise underflow to zero. The
// loss is multiplied by a power of two (the scale) before the backward pass, and the gradients are divided by
// the scale before the update. An overflow of a gradient halves the scale. Many steps without overflow double
// the scale.
#pragma once

#include <algorithm>
#include <cstdint>

namespace argosy::train {

struct LossScaleOptions {
    double init = 65536;             // a power of two, so that scaling never rounds
    int64_t growth_interval = 2000;  // good steps in a row after which the scale doubles
};

class LossScale {
  public:
    /// The state that changes over the steps. A resumed run needs it.
    struct State {
        double scale;
        int64_t good_steps;  // since the last overflow or doubling
        bool operator==(const State&) const = default;
    };

    static constexpr double kMin = 1;

    explicit LossScale(const LossScaleOptions& options)
        : growth_interval_(options.growth_interval), state_{options.init, 0} {}

    double value() const { return state_.scale; }

    /// Called after a step whose gradients did not overflow.
    void count_good_step() {
        if (++state_.good_steps >= growth_interval_) state_ = {2 * state_.scale, 0};
    }
    /// Called after a step whose gradients overflowed: halves the scale. Returns false if the scale was kMin
    /// already. The overflow then has another cause than the scale.
    bool lower() {
        const bool lowered = state_.scale > kMin;
        state_ = {std::max(state_.scale / 2, kMin), 0};
        return lowered;
    }

    const State& state() const { return state_; }
    void restore(const State& state) { state_ = state; }

  private:
    int64_t growth_interval_;
    State state_;
};

}  // namespace argosy::train
