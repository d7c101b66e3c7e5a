// What a block remembers from forward to backward, of one microbatch. A slot that the recompute policy drops
// after the forward pass is filled again by Block::recompute, bit for bit.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention.h"
#include "ops/rms_norm.h"

namespace argosy::model {

/// What stays on the tape between forward and backward.
enum class Keep {
    Everything,
    Products,  // drops what is cheap to compute again from the products: norms, rotations, activations
    Input,     // drops all but the block's input
};

struct Tape {
    at::Tensor input;  // [rows, dim], the residual stream
    ops::RmsNormOutput attention_norm;
    /// [tokens, (heads + 2 kv_heads) * head_dim], products; q and k are rotated here, unless a norm comes
    /// first.
    at::Tensor qkv;
    ops::RmsNormOutput q_norm, k_norm;  // with QK-norm only
    /// [tokens, heads * head_dim], normed and rotated: columns of qkv, or what comes after it.
    at::Tensor q, k, v;
    ops::AttentionOutput attention;
    at::Tensor middle;  // the residual stream after attention
    ops::RmsNormOutput feed_forward_norm;
    at::Tensor gate_up;  // [tokens, 2 hidden]
    at::Tensor activation;

    void drop(Keep keep);
};

}  // namespace argosy::model
