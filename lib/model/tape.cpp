#include "model/tape.h"

namespace argosy::model {

void Tape::drop(RecomputeMode mode) {
    if (mode == RecomputeMode::None) return;
    if (mode == RecomputeMode::Full) {
        *this = Tape{.input = input};
        return;
    }
    attention_norm.y.reset();
    feed_forward_norm.y.reset();
    activation.reset();
    if (q_norm.inverse_rms.defined()) {
        q.reset();
        k.reset();
    }
}

}  // namespace argosy::model
