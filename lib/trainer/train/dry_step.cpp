#include "train/dry_step.h"

#include <ATen/ops/empty.h>

#include <vector>

#include "ops/documents.h"
#include "ops/planned_gpu.h"

namespace argosy::train {

DryRank::DryRank(const TrainerOptions& options, const layout::MeshShape& shape, int rank,
                 comm::Recording& recording)
    : world_(rank, shape.num_ranks(), recording),
      mesh_(shape, world_),
      trainer_(options, mesh_),
      microbatch_size_(options.model.microbatch_size),
      seq_len_(options.model.seq_len / shape.degree(layout::Axis::Context)),
      num_microbatches_(options.num_microbatches),
      balance_(options.model.context.balance) {}

StepBatch DryRank::batch() const {
    const int64_t num_tokens = microbatch_size_ * seq_len_;
    const at::Tensor tokens = at::empty({num_tokens}, at::TensorOptions(mesh_.device()).dtype(at::kLong));
    model::Batch microbatch{tokens, tokens, microbatch_size_, seq_len_};
    if (mesh_.degree(layout::Axis::Context) > 1) {
        microbatch.positions = tokens;
        // On GPUs a DataFeed makes this room: each part of a sequence may begin with a document's rest.
        const int64_t num_parts = layout::chunks_per_rank(balance_);
        if (ops::counts_as_gpu(tokens))
            microbatch.document_offsets =
                ops::document_offsets(tokens, ops::document_capacity(microbatch_size_ * (1 + num_parts)));
    }
    return {.microbatches = std::vector(num_microbatches_, microbatch),
            .counted_tokens = num_tokens * num_microbatches_,
            .job_counted_tokens = num_tokens * num_microbatches_};
}

void record_step(const TrainerOptions& options, const layout::MeshShape& shape, int rank,
                 comm::Recording& recording) {
    DryRank dry(options, shape, rank, recording);
    Step& step = dry.trainer().step();
    step.update(step.forward_backward(dry.batch()), /*lr=*/1e-3);
}

}  // namespace argosy::train
