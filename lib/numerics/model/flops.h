// The cost of a training token in FLOPs, by the formulas of published MFU figures. Model FLOPs are those that
// the mathematics needs: recomputed activations and padding do not count.
#pragma once

#include <cstdint>

#include "model/model_spec.h"

namespace argosy::model {

/// Model FLOPs of one training token, forward and backward, at sequence length T. Let
///   N = parameters by which a token is multiplied (Parameter::multiplied),
///   L = layers,
///   d = num_heads * head_dim,
///   W = the sliding window, T at most; T without one.
/// The weights cost 6 N: a multiplication and an addition per weight, once forward and twice backward.
/// Attention costs
///   causal      12 L d W (1 - W / 2T): the mean number of tokens to which a token attends, which is T / 2
///               without a window (6 L d T); the work of a causal kernel
///   non-causal  12 L d W: as if every token attended to W tokens, all T without a window; the convention of
///               PaLM and TorchTitan
/// Documents do not change the figures: a sequence of several counts as one, so that runs can be compared.
struct FlopsPerToken {
    double causal = 0;
    double noncausal = 0;
};
FlopsPerToken flops_per_token(const ModelSpec& spec, int64_t sequence_length);

}  // namespace argosy::model
