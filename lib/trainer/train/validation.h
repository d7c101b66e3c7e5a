// The loss of held-out samples under the weights of the moment. The forward pass of training runs on the same
// mesh, without gradients, so training does not change. Each sample counts once, whatever the number of
// ranks: the last batch is filled with padding, which does not count.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/mesh.h"
#include "data/loader.h"
#include "parallel/executor.h"
#include "train/data_feed.h"
#include "train/run_limits.h"
#include "train/trainer.h"

namespace argosy::train {

struct ValidationResult {
    double loss = 0;         // mean over all counted tokens
    int64_t num_tokens = 0;  // counted
};

class Validation {
  public:
    static constexpr int64_t kWholeSet = -1;

    /// A batch is of `sizes`; its microbatches are those of training, as `options` says. `max_samples` of the
    /// job count, or kWholeSet. REQUIRES: trainer and mesh outlive this object; `options` are those of the
    /// trainer; the loader's samples are at most as long as training's.
    Validation(data::Loader loader, const TrainerOptions& options, const BatchSizes& sizes,
               int64_t max_samples, Trainer& trainer, comm::Mesh& mesh);

    /// COLLECTIVE over the world: the same result on all ranks. None if a rank receives a signal before the
    /// last batch, which then ends the run at the next stop.agreed(), and, with a warning, if no token of the
    /// batches counts.
    std::optional<ValidationResult> run(StopAgreement& stop);

  private:
    std::optional<int64_t> add_losses(StopAgreement& stop, at::Tensor& sum);

    data::Loader loader_;
    comm::Mesh& mesh_;
    BatchSizes sizes_;
    int64_t num_samples_, num_batches_;
    parallel::Executor executor_;
};

}  // namespace argosy::train
