#include "parallel/recorded_run.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace argosy::parallel {

RecordedRun::RecordedRun(std::span<const model::Batch> microbatches, const at::Tensor& loss_scale,
                         const Run& run, const RecordedRun* before)
    : microbatches_(microbatches.begin(), microbatches.end()), loss_scale_(loss_scale.clone()) {
    for (model::Batch& batch : microbatches_) {
        batch.tokens = batch.tokens.clone();
        batch.targets = batch.targets.clone();
    }
    loss_sum_ = at::empty({}, loss_scale.options().dtype(at::kDouble));
    graph_.emplace([this, run] { loss_sum_.copy_(run(microbatches_, loss_scale_)); },
                   before ? &*before->graph_ : nullptr);
}

bool RecordedRun::takes(std::span<const model::Batch> microbatches) const {
    return std::ranges::equal(microbatches, microbatches_, [](const auto& a, const auto& b) {
        return a.num_sequences == b.num_sequences && a.seq_len == b.seq_len;
    });
}

at::Tensor RecordedRun::replay(std::span<const model::Batch> microbatches, const at::Tensor& loss_scale) {
    for (size_t i = 0; i < microbatches.size(); ++i) {
        microbatches_[i].tokens.copy_(microbatches[i].tokens);
        microbatches_[i].targets.copy_(microbatches[i].targets);
    }
    loss_scale_.copy_(loss_scale);
    graph_->replay();
    return loss_sum_.clone();
}

}  // namespace argosy::parallel
