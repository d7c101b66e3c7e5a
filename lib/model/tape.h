// The tensors that a block keeps from forward to backward for one microbatch, one slot for each. The caller
// of the block owns the tape. Block::recompute fills the slots that drop() emptied after forward, with the
// same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention.h"
#include "ops/rms_norm.h"

namespace argosy::model {

/// The tensors that backward computes again because they do not stay on the tape.
enum class RecomputeMode {
    None,
    Selective,  // what is cheap to compute again: outputs of norms, QK-normed q and k, the activation
    Full,       // everything but the block's input
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

    void drop(RecomputeMode mode);
};

}  // namespace argosy::model
