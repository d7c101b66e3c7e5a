// How far a run has come.
#pragma once

#include <cstdint>

namespace argosy::train {

/// How far a run has come, in steps, samples and tokens.
struct Position {
    int64_t step = 0;     // the last step done; steps are numbered from 1
    int64_t samples = 0;  // position of the next sample in the run (data::Loader)
    int64_t tokens = 0;   // trained on so far, all ranks together
    bool operator==(const Position&) const = default;
    Position& operator+=(const Position& more) {
        return *this = {step + more.step, samples + more.samples, tokens + more.tokens};
    }
};

}  // namespace argosy::train
