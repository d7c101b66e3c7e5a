// The interface of the layers that transform the residual stream (the embedding and the blocks), and the
// batch that they read. The head has another interface, because it computes the loss and its gradient in a
// single pass. A layer knows no ranks and keeps only its configuration between calls: the caller passes the
// weights and the tape.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

#include "model/balancing.h"
#include "model/parameter.h"
#include "model/tensor_axis.h"
#include "model/weight_work.h"

namespace argosy::model {

/// The tokens of one microbatch, as layers read them.
struct Batch {
    at::Tensor tokens;   // [num_sequences * seq_len], int64
    at::Tensor targets;  // same shape and type: each token's next token; negative: not counted
    int64_t num_sequences = 0, seq_len = 0;
    /// Same shape and type: each token's position in its document. Undefined: each sequence is one document.
    /// Attention stays within a document.
    at::Tensor positions = {};
    /// The same documents as offsets (ops::document_offsets), for attention on a GPU. Undefined: attention
    /// computes all scores at once there.
    at::Tensor document_offsets = {};
    /// int64, one at least: the tokens for which a forward pass without gradients computes the head.
    /// Undefined: all. Every other token has a target that does not count.
    at::Tensor head_rows = {};
    /// Attention in place of the blocks' context axis, without a backward pass; null: theirs. REQUIRES: it
    /// outlives the forward pass.
    const ContextAxis* attention = nullptr;
    /// Of a training step; null: experts are chosen by their scores, and nothing counts them. REQUIRES: it
    /// outlives the backward pass.
    const Balancing* balancing = nullptr;
};
/// All tensors of a batch, for whoever copies batches.
inline constexpr at::Tensor Batch::*kBatchTensors[] = {&Batch::tokens, &Batch::targets, &Batch::positions,
                                                       &Batch::document_offsets, &Batch::head_rows};

/// The tensors that do not stay on the tape, so that backward computes them again.
enum class RecomputeMode {
    None,
    /// Tensors that are cheap to compute: outputs of norms, QK-normed q and k, the activation, and casts of
    /// the products' inputs.
    Selective,
    Full,  // all tensors but the block's input
};

/// Empties the inputs of products that a mode drops; of those that stay, frees what only forward reads.
inline void drop_casts(std::initializer_list<ops::Operand*> inputs, RecomputeMode mode) {
    for (ops::Operand* input : inputs) {
        if (mode == RecomputeMode::None) {
            input->keep_for_sums_over_rows();
        } else {
            *input = {};
        }
    }
}

struct Tape;  // block.h: what a layer keeps from forward to backward

class Layer {
  public:
    virtual ~Layer() = default;

    /// Returns the residual stream after this layer, [rows, dim]. Stores on the tape the tensors that
    /// backward needs, except those that `mode` drops.
    virtual at::Tensor forward(const Weights& weights, const at::Tensor& x, const Batch& batch,
                               RecomputeMode mode, Tape& tape) const = 0;

    /// COLLECTIVE, as forward(): fills again the slots of the tape that forward() dropped.
    virtual void recompute(const Weights& weights, const Batch& batch, Tape& tape) const = 0;

    /// Returns the gradient of x (undefined for the embedding). Stores in `work` the tensors from which the
    /// weights' gradients are computed later. Empties the tape.
    virtual at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch,
                                      Tape& tape, WeightWork& work) const = 0;
};

}  // namespace argosy::model
