#include "parallel/watched_attention.h"

#include <ATen/ops/maximum.h>

#include "ops/work.h"

namespace argosy::parallel {

ops::AttentionOutput WatchedAttention::attention(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v, const ops::AttentionShape& shape,
                                                 const at::Tensor& positions) const {
    ops::AttentionShape watched = shape;
    watched.watch = watch_;  // for scores above the threshold, in each part of the keys
    ops::AttentionOutput output = attention_.attention(q, k, v, watched, positions);
    const at::Tensor bounds = output.log_sum_exp.transpose(0, 1).flatten(1).amax(1);  // dim 1 has the heads
    ops::note_pass({output.log_sum_exp, bounds});
    // In place: a recorded GPU graph raises the same memory in each launch.
    at::Tensor largest = watch_.largest;
    at::maximum_out(largest, largest, bounds.clamp_max_(watch_.threshold));
    return output;
}

}  // namespace argosy::parallel
