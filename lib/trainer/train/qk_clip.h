// QK-clip, as MuonClip has it: if attention scores of a step were larger than a threshold, the update also
// shrinks the rows of wq and wk (and their biases) that made them. S is the largest score of the heads that
// share a key head. Both are multiplied by sqrt(threshold / S), so that the largest score of the same input
// would be the threshold, were it not for the step of the same update. Queries and keys with a norm of their
// own do not follow their weights.
//
// QK-clip keeps no state: the scores are of one step (parallel/watched_attention.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/parallel_model.h"

namespace argosy::train {

class QkClip {
  public:
    /// `seed` is of stochastic rounding. REQUIRES: model outlives this object; its scores are watched.
    QkClip(double threshold, uint64_t seed, parallel::ParallelModel& model);

    /// Scales this rank's shards of the heads whose scores are too large. `largest`: [layers, heads] of the
    /// whole model, on the host, the same on all ranks. `update` is the number of the update.
    void apply(const at::Tensor& largest, int64_t update);

    double threshold() const { return threshold_; }

  private:
    void scale(parallel::ShardedParameter& parameter, const at::Tensor& factors, int64_t update) const;

    double threshold_;
    uint64_t seed_;
    parallel::ParallelModel& model_;
};

}  // namespace argosy::train
