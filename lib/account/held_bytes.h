// Counts the bytes that a rank holds as long as a run trains, by purpose. Activations are not counted.
#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "optim/adamw.h"
#include "parallel/parallel_model.h"
#include "train/trainer.h"

namespace argosy::account {

struct HeldBytes {
    int64_t weights = 0;    // the weights that the optimizer updates
    int64_t copies = 0;     // copies of the weights in the type of computation, if that type differs
    int64_t gradients = 0;  // of the parameters, and of units before the reduction over the shards
    int64_t moments = 0;    // of the optimizer
    int64_t gathered = 0;   // weights of units that are gathered now
    int64_t total() const { return weights + copies + gradients + moments + gathered; }
};

/// Bytes that this rank holds now.
HeldBytes held_bytes(parallel::ParallelModel& model, const optim::AdamW& optimizer);

/// Bytes that this rank's Trainer will hold once it is constructed. Computed without allocating anything.
HeldBytes planned_bytes(const train::TrainerOptions& options, const comm::Mesh& mesh);

}  // namespace argosy::account
