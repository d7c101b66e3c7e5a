// A rank of any mesh, without data and without other ranks, and its step.
#pragma once

#include "comm/mesh.h"
#include "comm/recording.h"
#include "train/trainer.h"

namespace argosy::train {

/// The Trainer of one rank on tensors without data (meta). `recording` records its operations.
class DryRank {
  public:
    /// Throws as Trainer does. REQUIRES: an ops::OpsContext exists; recording outlives this object.
    DryRank(const TrainerOptions& options, const layout::MeshShape& shape, int rank,
            comm::Recording& recording);
    DryRank(const DryRank&) = delete;

    Trainer& trainer() { return trainer_; }
    /// A batch of a step, in which every token counts.
    StepBatch batch() const;

  private:
    comm::RecordingCommunicator world_;
    comm::Mesh mesh_;
    Trainer trainer_;
    int64_t microbatch_size_, seq_len_, num_microbatches_;  // seq_len_: of this rank
    layout::ContextBalance balance_;
};

/// Makes a DryRank and runs one step.
void record_step(const TrainerOptions& options, const layout::MeshShape& shape, int rank,
                 comm::Recording& recording);

}  // namespace argosy::train
