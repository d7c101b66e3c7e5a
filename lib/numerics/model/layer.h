// The interface of the layers that transform the residual stream (the embedding and the blocks), and their
// data: the batch, the tape from forward to backward, and the work that remains for the weights' gradients.
// The head has another interface, because it computes the loss and its gradient in a single pass. A layer
// knows no ranks and keeps only its configuration between calls: the caller passes the weights and the tape.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "model/parameter.h"
#include "model/tensor_axis.h"
#include "ops/attention.h"
#include "ops/rms_norm.h"

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

/// The tensors that a block keeps from forward to backward for one microbatch; each tensor has a slot. The
/// caller of the block owns the tape. drop() empties slots after forward; Block::recompute fills them again,
/// with the same bits. drop() also frees what only forward reads: the row-major order of casts.
struct Tape {
    at::Tensor input;  // [rows, dim], the residual stream
    // Inputs of products: cast if one cast serves both of their products, else the matrices themselves.
    ops::Operand attention_input;  // [rows, dim], normalised
    at::Tensor attention_inverse_rms;
    /// [tokens, (heads + 2 kv_heads) * head_dim]: the fused projection to q, k and v. Without QK-norm, q and
    /// k are rotated in place, in this tensor.
    at::Tensor qkv;
    ops::RmsNormOutput q_norm, k_norm;  // with QK-norm only; y is moved to q and k
    /// q [tokens, heads * head_dim]; k, v [tokens, kv_heads * head_dim]: the inputs of attention. v is a view
    /// of qkv. q and k are views of qkv without QK-norm, else tensors of their own.
    at::Tensor q, k, v;
    ops::AttentionOutput attention;
    ops::Operand attention_output;    // its y
    at::Tensor middle;                // [rows, dim], the residual stream after attention
    ops::Operand feed_forward_input;  // [rows, dim], normalised
    at::Tensor feed_forward_inverse_rms;
    at::Tensor gate_up;       // [tokens, 2 hidden]
    ops::Operand activation;  // [tokens, hidden]

    void drop(RecomputeMode mode);
};

/// The weights' half of a backward pass, stored as data: the tensors from which each parameter's gradient is
/// computed. Because the halves are separate, a pipeline or communication schedule can decide when the
/// weights' half runs. This half does not need the weights. A WeightWork holds its tensors until it is
/// destroyed.
class WeightWork {
  public:
    /// One parameter, or all parameters of a join; the outputs of a join are adjacent columns of dy.
    using RoleOrJoin = std::variant<Role, Join>;

    /// dW += dy^T x. Casts that the operands still lack are made when the work runs.
    void add_product(RoleOrJoin key, ops::Operand dy, ops::Operand x,
                     const ops::Recipe& recipe = ops::kNoCasts);
    /// The same, for an x of which this rank has its rows: they are gathered when the work runs. REQUIRES:
    /// axis outlives this object.
    void add_product(RoleOrJoin key, ops::Operand dy, ops::Operand x, const ops::Recipe& recipe,
                     const TensorAxis& axis);
    void add_row_sum(RoleOrJoin key, at::Tensor dy);  // db += sum of the rows of dy
    void add_value(Role role, at::Tensor gradient);   // dw += gradient
    /// dW[token - begin] += dx, of which this rank has its rows, as in the other add_product().
    void add_lookup(Role role, at::Tensor dx, at::Tensor tokens, int64_t begin, const TensorAxis& axis);

    /// COLLECTIVE over the axes of the products: starts to gather all rows that the work needs.
    void start_gathers();
    /// COLLECTIVE, as start_gathers(), which it calls unless that was done. Computes the gradients and adds
    /// them to `gradients`: first those that need no gathered rows, so that the others' rows travel
    /// meanwhile; both in the order of the add calls. Keeps the tensors.
    void run(const Gradients& gradients);

    /// For sums in bf16: the number of rows of a gradient that run() computes at a time, in an fp32 tensor on
    /// the device of x.
    static int64_t rows_at_once(int64_t num_rows, int64_t row_size, const at::Tensor& x);

  private:
    enum class Kind { Product, RowSum, Value, Lookup };
    struct Item {
        Kind kind;
        RoleOrJoin key;
        ops::Operand dy;
        ops::Operand other;  // x or tokens
        const ops::Recipe* recipe = &ops::kNoCasts;
        int64_t begin = 0;
        const TensorAxis* axis = nullptr;              // rows() are this rank's; null: all
        std::shared_ptr<ComingRows> coming = nullptr;  // all rows()
        /// The rows that a product or a lookup may have to gather.
        ops::Operand& rows() { return kind == Kind::Lookup ? dy : other; }
    };
    static Item cast(const Item& item);
    static void run(const Item& item, const Gradients& gradients, Role role);
    static void run(const Item& item, const Gradients& gradients, Join join);
    static void add(const Item& item, GradientSum& gradient);
    static void add_rounded(const Item& item, std::span<GradientSum* const> gradients);
    static Item rows_of(const Item& item, int64_t first, int64_t count);
    std::vector<Item> items_;
};

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
