#include "parallel/watched_attention.h"

#include <ATen/ops/maximum.h>

#include "ops/work.h"

namespace argosy::parallel {

ops::AttentionOutput WatchedAttention::attention(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v, const ops::AttentionShape& shape,
                                                 const at::Tensor& positions) const {
    ops::AttentionOutput output = attention_.attention(q, k, v, shape, positions);
    const at::Tensor largest = output.log_sum_exp.transpose(0, 1).flatten(1).amax(1);  // dim 1 has the heads
    ops::note_pass({output.log_sum_exp, largest});
    // In place: a recorded GPU graph raises the same memory in each launch.
    at::Tensor bounds = bounds_;
    at::maximum_out(bounds, bounds, largest);
    return output;
}

}  // namespace argosy::parallel
