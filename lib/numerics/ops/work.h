// The work of operations: FLOPs of matrix products and attention, and the bytes that operations read and
// write. A WorkObserver gets the work of each operation that its thread calls. On tensors without data it
// tells what an operation of the real step would cost.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>

#include "ops/attention.h"

namespace argosy::ops {

enum class WorkKind {
    Product,    // a matrix product
    Attention,  // the forward pass
    AttentionBackward,
    Pass,  // an operation that is bound by memory: it passes over its tensors once
};

struct Work {
    WorkKind kind;
    at::ScalarType type;  // of the operands
    double flops = 0;     // 0 for Pass
    double bytes = 0;     // of all operands and results, each counted once
    /// A product has the rows and columns of its result, and the terms of a sum. Attention has q_len, the
    /// columns of q, and head_dim. A pass has 0.
    int64_t rows = 0, columns = 0, terms = 0;
    double score_bytes = 0;       // of attention that holds all scores of its queries at once
    bool in_long_blocks = false;  // a product in float8 with fp32 scales for 128 terms, as Hopper has it
    bool by_flash = false;        // attention that on GPUs only FlashAttention computes (gpu/attention.h)
};

/// While it exists, observe(work) is called for each operation of this thread.
class WorkObserver {
  public:
    using Observe = std::function<void(const Work&)>;
    explicit WorkObserver(Observe observe);
    WorkObserver(const WorkObserver&) = delete;
    ~WorkObserver();

  private:
    Observe observe_;
    const Observe* outer_;
};

// Operations report their work with these functions, which do nothing without a WorkObserver.

/// out = a product with `terms` terms in each element's sum, of operands of `operand`'s type.
void note_product(const at::Tensor& out, const at::Tensor& operand, int64_t terms,
                  bool in_long_blocks = false);
/// Products of groups of rows at once. `mean` has their FLOPs, and the sizes of one of them. The first
/// tensor's type is that of the work.
void note_products(const Work& mean, std::initializer_list<at::Tensor> tensors);
/// `kind`: Attention or AttentionBackward. `holds_scores`: all at once, in the accumulation type.
void note_attention(WorkKind kind, const at::Tensor& q, const at::Tensor& k, const AttentionShape& shape,
                    bool holds_scores, bool by_flash = false);
/// The first tensor's type is that of the work. Undefined tensors do not count.
void note_pass(std::initializer_list<at::Tensor> tensors);

}  // namespace argosy::ops
