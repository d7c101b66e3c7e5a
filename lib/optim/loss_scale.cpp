#include "optim/loss_scale.h"

#include <algorithm>

namespace argosy::optim {

void LossScale::count_good_step() {
    if (++state_.good_steps < growth_interval_) return;
    state_ = {2 * state_.scale, 0};
}

bool LossScale::lower() {
    const bool lowered = state_.scale > kFloor;
    state_ = {std::max(state_.scale / 2, kFloor), 0};
    return lowered;
}

}  // namespace argosy::optim
