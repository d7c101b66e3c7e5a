// The tensors that a block keeps from forward to backward for one microbatch, one slot for each. The caller
// of the block owns the tape. Block::recompute fills the slots that the recompute policy (Keep) drops after
// forward, with the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention.h"
#include "ops/rms_norm.h"

namespace argosy::model {

/// The recompute policy: the tensors that stay on the tape between forward and backward.
enum class Keep {
    Everything,
    Products,  // drops what is cheap to compute again: outputs of norms, QK-normed q and k, the activation
    Input,     // keeps the block's input only
};

struct Tape {
    at::Tensor input;  // [rows, dim], the residual stream
    ops::RmsNormOutput attention_norm;
    /// [tokens, (heads + 2 kv_heads) * head_dim]: the fused projection to q, k and v. Without QK-norm the
    /// rotation of q and k happens in place, in this tensor.
    at::Tensor qkv;
    ops::RmsNormOutput q_norm, k_norm;  // with QK-norm only; y is moved to q and k
    /// q [tokens, heads * head_dim]; k, v [tokens, kv_heads * head_dim]: the inputs of attention. v is a view
    /// of qkv. q and k are views of qkv without QK-norm, else tensors of their own.
    at::Tensor q, k, v;
    ops::AttentionOutput attention;
    at::Tensor middle;  // [rows, dim], the residual stream after attention
    ops::RmsNormOutput feed_forward_norm;
    at::Tensor gate_up;     // [tokens, 2 hidden]
    at::Tensor activation;  // [tokens, hidden]

    void drop(Keep keep);
};

}  // namespace argosy::model
