// The cost of a training token in FLOPs, by the formulas of published MFU figures. Model FLOPs are those that
// the mathematics needs: recomputed activations and padding do not count.
#pragma once

#include <cstdint>

#include "model/model_spec.h"

namespace argosy::observe {

/// Model FLOPs of one training token, forward and backward, at sequence length T. In these formulas
///   N = all parameters but the input embedding, which is a look-up (a tied table counts, as the head),
///   L = layers,
///   d = num_heads * head_dim,
/// the weights cost 6 N (a multiplication and an addition each, once forward and twice backward), and
/// attention costs
///   causal       6 L d T: each token attends to T / 2 others on average; what a causal kernel computes
///   non-causal  12 L d T: as if each attended to all T; PaLM's and TorchTitan's convention, a higher figure
struct FlopsPerToken {
    double causal = 0;
    double noncausal = 0;
};
FlopsPerToken flops_per_token(const model::ModelSpec& spec, int64_t sequence_length);

}  // namespace argosy::observe
