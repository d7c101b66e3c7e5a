// Attention of a packed batch (windows.h), in which the beginning of a window is computed only once if it is
// also that of the window before it. The blocks reach it as their context axis. It works on any device, but a
// call for each window is slow on a GPU.
#pragma once

#include "eval/windows.h"
#include "model/tensor_axis.h"

namespace argosy::eval {

class PackedAttention : public model::ContextAxis {
  public:
    /// REQUIRES: `batch` is packed and outlives this object.
    explicit PackedAttention(const WindowBatch& batch) : batch_(batch) {}

    /// Only y of the result is defined, which suffices without a backward pass.
    ops::AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ops::AttentionShape& shape,
                                   const at::Tensor& positions) const override;

  private:
    const WindowBatch& batch_;
};

}  // namespace argosy::eval
