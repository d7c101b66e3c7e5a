// A transformer block: attention, then the feed-forward half, which has one MLP or experts. The backward pass
// is written by hand. The tape keeps tensors from forward to backward.
#pragma once

#include <optional>

#include "model/attention.h"
#include "model/experts.h"
#include "model/feed_forward.h"
#include "model/layer.h"
#include "model/model_spec.h"
#include "model/tensor_axis.h"
#include "ops/rope.h"

namespace argosy::model {

/// The rotations of a model's q and k for the positions 0 .. seq_len - 1.
struct RopeTables {
    ops::RopeTable all, windowed;  // of layers with the window; the same tensors if they rotate alike

    const ops::RopeTable& of(const LayerSpec& layer) const {
        return layer.rotates_as_windowed ? windowed : all;
    }
    /// The first `seq_len` positions.
    RopeTables first(int64_t seq_len) const;
};
/// `longest_sequence` of the run decides between the factors of RopeScaling::Type::Longrope; none: seq_len.
RopeTables rope_tables(const ModelSpec& spec, int64_t seq_len, const at::TensorOptions& options,
                       std::optional<int64_t> longest_sequence = {});

/// The tensors that a block keeps from forward to backward for one microbatch. The caller of the block owns
/// the tape. drop() empties slots after forward; Block::recompute fills them again, with the same bits.
/// drop() also frees what only forward reads: the row-major order of casts.
struct Tape {
    at::Tensor input;  // [rows, dim], the residual stream
    AttentionTape attention;
    at::Tensor middle;  // [rows, dim], the residual stream after attention
    FeedForwardTape feed_forward;
    ExpertsTape experts;

    void drop(RecomputeMode mode);
};

struct BlockPlaces {
    AttentionPlaces attention;
    FeedForwardPlaces feed_forward;
    ExpertsPlaces experts;
};
/// Declares the parameters of a block. The order of a unit's parameters is that in which norms add them up:
/// biases and norms of heads come after all matrices.
BlockPlaces declare_block(const ModelSpec& spec, int64_t layer, Unit& unit);

class Block : public Layer {
  public:
    /// REQUIRES: the axes and rope outlive the block.
    Block(const ModelSpec& spec, int64_t layer, const TensorAxis& axis, const ContextAxis& context,
          const ExpertAxis& expert_axis, const RopeTables& rope);

    at::Tensor forward(const Weights& weights, const at::Tensor& x, const Batch& batch, RecomputeMode mode,
                       Tape& tape) const override;
    void recompute(const Weights& weights, const Batch& batch, Tape& tape) const override;
    at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch, Tape& tape,
                              WeightWork& work) const override;

  private:
    // COLLECTIVE: the feed-forward half.
    void fill_half(const Weights& weights, const at::Tensor& x, const Batch& batch, ops::SumOver summed,
                   ops::SumOver activation_summed, Tape& tape) const;
    at::Tensor add_half(const at::Tensor& x, const Weights& weights, Tape& tape) const;

    const Attention attention_;
    // One of the two.
    std::optional<const FeedForward> feed_forward_;
    std::optional<const Experts> experts_;
};

}  // namespace argosy::model
