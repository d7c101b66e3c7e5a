// A step of any rank of any mesh, without data and without other ranks.
#pragma once

#include "comm/recording.h"
#include "train/trainer.h"

namespace argosy::train {

/// Makes the Trainer of `rank` on tensors without data and runs one step, which `recording` records. Throws
/// as Trainer does. REQUIRES: an ops::OpsContext exists.
void record_step(const TrainerOptions& options, const layout::MeshShape& shape, int rank,
                 comm::Recording& recording);

}  // namespace argosy::train
