// What a rank's memory holds of a run for as long as it trains, by what it is for.
#pragma once

#include <cstdint>

#include "mesh/mesh.h"
#include "optim/adamw.h"
#include "parallel/parallel_model.h"
#include "train/trainer.h"

namespace argosy::train {

struct HeldBytes {
    int64_t weights = 0;    // that the optimizer updates
    int64_t copies = 0;     // of weights, in the type of computation where that is another
    int64_t gradients = 0;  // the parameters', and those of units before they are summed over the shards
    int64_t moments = 0;    // the optimizer's
    int64_t gathered = 0;   // weights of units that are whole now
    int64_t total() const { return weights + copies + gradients + moments + gathered; }
};

/// Now.
HeldBytes held_bytes(parallel::ParallelModel& model, const optim::AdamW& optimizer);

/// What this rank's Trainer will hold once it is made; before, nothing is.
HeldBytes planned_bytes(const TrainerOptions& options, const mesh::Mesh& mesh);

}  // namespace argosy::train
