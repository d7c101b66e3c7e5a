// How far a run has come, in steps, samples and tokens.
#pragma once

#include <cstdint>

namespace argosy::train {

struct Position {
    int64_t step = 0;     // the last one done; 1 is the first
    int64_t samples = 0;  // position of the next sample as data::Loader counts: independent of batch sizes
    int64_t tokens = 0;   // trained on so far by all ranks together
    bool operator==(const Position&) const = default;
    Position& operator+=(const Position& more) {
        return *this = {step + more.step, samples + more.samples, tokens + more.tokens};
    }
};

}  // namespace argosy::train
