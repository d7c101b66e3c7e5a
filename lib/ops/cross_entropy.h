// The pieces of softmax cross-entropy over a vocabulary that may be cut over ranks: each works on this rank's
// columns [begin, begin + logits.size(1)) of the vocabulary; the caller combines maxima and sums over the
// ranks in between. A negative target marks a token that does not count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

/// Of each token, in the accumulation type.
struct SoftmaxSums {
    at::Tensor maxima;  // [tokens]: the largest logit; -inf where there are no columns
    /// [2, tokens]: the sum of exp(logit - maximum), and the target's logit, 0 where it lies elsewhere.
    at::Tensor sums;
};

/// Over this rank's columns.
SoftmaxSums softmax_sums(const at::Tensor& logits, const at::Tensor& targets, int64_t begin);

/// The same relative to larger maxima, those of all ranks: their sums then add up.
void raise_maxima(SoftmaxSums& own, const at::Tensor& maxima);

/// `all` becomes what further columns make of it; `more`, theirs, is used up.
void add_columns(SoftmaxSums& all, SoftmaxSums&& more);

/// Of each token log(sum exp) - target logit, minus its target's log-probability; 0 where it does not count.
at::Tensor cross_entropy(const SoftmaxSums& all, const at::Tensor& targets);

/// Of each token whether no logit is larger than its target's; false where it does not count.
at::Tensor target_is_largest(const SoftmaxSums& all, const at::Tensor& targets);

/// The sum of cross_entropy: a scalar in fp64.
at::Tensor cross_entropy_sum(const SoftmaxSums& all, const at::Tensor& targets);

/// `logits` becomes the gradient of scale * cross_entropy_sum with respect to it, zero for tokens that do not
/// count. `scale` is a scalar in the accumulation type.
void turn_into_cross_entropy_gradient(at::Tensor& logits, const SoftmaxSums& all, const at::Tensor& targets,
                                      int64_t begin, const at::Tensor& scale);

/// softmax_sums and that gradient at once, of logits of the whole vocabulary.
SoftmaxSums turn_into_cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets,
                                             const at::Tensor& scale);

}  // namespace argosy::ops
