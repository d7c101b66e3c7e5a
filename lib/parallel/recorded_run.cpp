#include "parallel/recorded_run.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace argosy::parallel {
namespace {

bool have_same_sizes(const at::Tensor& a, const at::Tensor& b) {
    return a.defined() == b.defined() && (!a.defined() || a.sizes() == b.sizes());
}

}  // namespace

RecordedRun::RecordedRun(std::span<const model::Batch> microbatches, const at::Tensor& loss_scale,
                         const Run& run, const RecordedRun* before)
    : microbatches_(microbatches.begin(), microbatches.end()), loss_scale_(loss_scale.clone()) {
    for (model::Batch& batch : microbatches_) {
        for (const auto tensor : model::kBatchTensors) {
            if ((batch.*tensor).defined()) batch.*tensor = (batch.*tensor).clone();
        }
    }
    loss_sum_ = at::empty({}, loss_scale.options().dtype(at::kDouble));
    graph_.emplace([this, run] { loss_sum_.copy_(run(microbatches_, loss_scale_)); },
                   before ? &*before->graph_ : nullptr);
}

bool RecordedRun::fits(std::span<const model::Batch> microbatches) const {
    return std::ranges::equal(microbatches, microbatches_, [](const auto& a, const auto& b) {
        return a.num_sequences == b.num_sequences && a.seq_len == b.seq_len &&
               std::ranges::all_of(model::kBatchTensors,
                                   [&](const auto tensor) { return have_same_sizes(a.*tensor, b.*tensor); });
    });
}

at::Tensor RecordedRun::replay(std::span<const model::Batch> microbatches, const at::Tensor& loss_scale) {
    for (size_t i = 0; i < microbatches.size(); ++i) {
        for (const auto tensor : model::kBatchTensors) {
            if ((microbatches[i].*tensor).defined())
                (microbatches_[i].*tensor).copy_(microbatches[i].*tensor);
        }
    }
    loss_scale_.copy_(loss_scale);
    graph_->replay();
    return loss_sum_.clone();
}

}  // namespace argosy::parallel
