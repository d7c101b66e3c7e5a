#include "train/dry_step.h"

#include <ATen/ops/empty.h>

#include <vector>

namespace argosy::train {

void record_step(const TrainerOptions& options, const layout::MeshShape& shape, int rank,
                 comm::Recording& recording) {
    comm::RecordingCommunicator world(rank, shape.num_ranks(), recording);
    comm::Mesh mesh(shape, world);
    Trainer trainer(options, mesh);
    const int context = shape.degree(layout::Axis::Context);
    const int64_t seq_len = options.seq_len / context, num_tokens = options.microbatch_size * seq_len;
    const at::Tensor tokens = at::empty({num_tokens}, at::TensorOptions(mesh.device()).dtype(at::kLong));
    const model::Batch microbatch{tokens, tokens, options.microbatch_size, seq_len,
                                  context > 1 ? tokens : at::Tensor()};
    const StepBatch batch{.microbatches = std::vector(options.num_microbatches, microbatch),
                          .counted_tokens = num_tokens * options.num_microbatches,
                          .job_counted_tokens = num_tokens * options.num_microbatches};
    trainer.step().update(trainer.step().forward_backward(batch), /*lr=*/1e-3);
}

}  // namespace argosy::train
