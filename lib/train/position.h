// How far a run has come, and the sizes of a step's batch, by which a step moves on.
#pragma once

#include <cstdint>

#include "layout/slab.h"

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

/// Sizes of a step's batch. The whole job has global_batch = data-parallel ranks x num_microbatches x
/// microbatch_size samples.
struct BatchSizes {
    int64_t global_batch, microbatch_size, num_microbatches;
    int64_t global_tokens = 0;  // tokens of global_batch samples
    layout::ContextBalance balance = layout::ContextBalance::HeadTail;
    int64_t seq_len = 0;  // of the batch's sequences; 0: that of the loader's samples, which may be shorter
    int64_t samples_per_rank() const { return microbatch_size * num_microbatches; }
};

}  // namespace argosy::train
