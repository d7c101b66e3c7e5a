// Attention of rows that continue a sequence whose keys and values are kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "eval/windows.h"
#include "model/tensor_axis.h"
#include "ops/attention.h"

namespace argosy::eval {

/// Rows [row, row + count) of a batch: the tokens after the first `begin` tokens of their sequence.
struct ContinuedRows {
    int64_t row, begin, count;
};

/// Keeps the rows' keys and values behind the first `begin` ones of `keys` and `values`, and writes the rows'
/// attention to all of them to the rows of y. `shape` has the head_dim and the window.
void attend(const ContinuedRows& rows, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
            const ops::AttentionShape& shape, const at::Tensor& keys, const at::Tensor& values,
            const at::Tensor& y);

/// Attention of a packed batch, in which the beginning of a window is computed only once if it is also that
/// of the window before it. The blocks reach it as Batch::attention. A call for each window would be slow on
/// a GPU.
class PackedAttention : public model::ContextAxis {
  public:
    /// REQUIRES: `batch` is packed and outlives this object.
    explicit PackedAttention(const WindowBatch& batch) : batch_(batch) {}

    /// Only y of the result is defined, which suffices without a backward pass. Rows after the last window
    /// are padding and get zeros.
    ops::AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ops::AttentionShape& shape,
                                   const at::Tensor& positions) const override;

  private:
    const WindowBatch& batch_;
};

}  // namespace argosy::eval
