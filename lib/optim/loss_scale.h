// Dynamic loss scaling for gradients in fp16, whose smallest numbers would vanish: the loss is multiplied by
// a power of two before the backward pass, the gradients divided by it before the update. An overflow says
// that it was too large; a long time without one that it may be larger.
#pragma once

#include <cstdint>

namespace argosy::optim {

struct LossScaleOptions {
    double init = 65536;             // a power of two, so that scaling rounds nothing
    int64_t growth_interval = 2000;  // good steps in a row after which the scale doubles
};

class LossScale {
  public:
    /// All that changes over the steps: what a resumed run needs.
    struct State {
        double scale;
        int64_t good_steps;  // since the scale last changed
        bool operator==(const State&) const = default;
    };

    static constexpr double kFloor = 1;

    explicit LossScale(const LossScaleOptions& options)
        : growth_interval_(options.growth_interval), state_{options.init, 0} {}

    double value() const { return state_.scale; }

    /// After a step whose gradients did not overflow.
    void count_good_step();
    /// After a step whose gradients overflowed: halves the scale. False where it is at its floor, so that the
    /// fault is not the scale's.
    bool lower();

    const State& state() const { return state_; }
    void restore(const State& state) { state_ = state; }

  private:
    int64_t growth_interval_;
    State state_;
};

}  // namespace argosy::optim
