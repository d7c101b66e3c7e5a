// The attention of a block. This base class computes on one device. A derived class can fetch keys and values
// from other ranks.
#pragma once

#include "ops/attention.h"

namespace argosy::model {

class Attention {
  public:
    virtual ~Attention() = default;

    virtual ops::AttentionOutput forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const ops::AttentionShape& shape) const {
        return ops::attention(q, k, v, shape);
    }

    virtual ops::AttentionGradient backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const ops::AttentionOutput& output,
                                            const ops::AttentionShape& shape) const {
        return ops::attention_backward(dy, q, k, v, output, shape);
    }
};

}  // namespace argosy::model
