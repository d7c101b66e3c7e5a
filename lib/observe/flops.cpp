#include "observe/flops.h"

#include "model/parameter.h"

namespace argosy::observe {

FlopsPerToken flops_per_token(const model::ModelSpec& spec, int64_t sequence_length) {
    const int64_t look_up = spec.tied_embeddings ? 0 : spec.vocab_size * spec.dim;
    const auto num_weights = static_cast<double>(model::num_parameters(spec) - look_up);
    const double attention = static_cast<double>(spec.num_layers) *
                             static_cast<double>(spec.num_heads * spec.head_dim) *
                             static_cast<double>(sequence_length);
    return {.causal = 6 * num_weights + 6 * attention, .noncausal = 6 * num_weights + 12 * attention};
}

}  // namespace argosy::observe
