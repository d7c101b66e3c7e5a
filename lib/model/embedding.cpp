#include "model/embedding.h"

#include "ops/embedding.h"

namespace argosy::model {

Embedding::Embedding(const ModelSpec& spec, const TensorAxis& axis)
    : axis_(axis), first_token_(axis.share(spec.vocab_size).begin) {}

at::Tensor Embedding::forward(const Weights& weights, const at::Tensor&, const Batch& batch, RecomputeMode,
                              Tape&) const {
    return axis_.reduce_rows(ops::embedding(weights[Role::Embedding], batch.tokens, first_token_));
}

at::Tensor Embedding::backward_input(const Weights&, const at::Tensor& dy, const Batch& batch, Tape&,
                                     WeightWork& work) const {
    work.add_lookup(Role::Embedding, axis_.gather_rows(dy), batch.tokens, first_token_);
    return {};
}

}  // namespace argosy::model
