// The steps of softmax cross-entropy over a vocabulary that may be cut over ranks. Each function works on
// this rank's columns [begin, begin + logits.size(1)) of the vocabulary and does not communicate. Between the
// steps, the caller combines maxima and sums over the ranks. A token with a negative target does not count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

/// The sums of each token, in the accumulation type.
struct SoftmaxSums {
    at::Tensor maxima;  // [tokens]: the largest logit; -inf if this rank has no columns
    /// [2, tokens]: row 0 is the sum of exp(logit - maximum); row 1 is the target's logit, or 0 if the target
    /// is not in these columns.
    at::Tensor sums;
};

/// Computes the sums over this rank's columns.
SoftmaxSums softmax_sums(const at::Tensor& logits, const at::Tensor& targets, int64_t begin);

/// Replaces own.maxima with the maxima of all ranks and rescales own.sums accordingly. The sums of the ranks
/// can then be added.
void raise_maxima(SoftmaxSums& own, const at::Tensor& maxima);

/// Returns [tokens]: log(sum exp) - target logit, the negative log-probability of the target; 0 for a token
/// that does not count.
at::Tensor cross_entropy(const SoftmaxSums& all, const at::Tensor& targets);

/// Returns [tokens]: whether no logit is larger than the target's; false for a token that does not count.
at::Tensor target_is_largest(const SoftmaxSums& all, const at::Tensor& targets);

/// The sum of cross_entropy over the tokens: a scalar in fp64.
at::Tensor cross_entropy_sum(const SoftmaxSums& all, const at::Tensor& targets);

/// Overwrites `logits` with the gradient of scale * cross_entropy_sum with respect to the logits. The
/// gradient is zero for tokens that do not count. `scale` is a scalar in the accumulation type.
void turn_into_cross_entropy_gradient(at::Tensor& logits, const SoftmaxSums& all, const at::Tensor& targets,
                                      int64_t begin, const at::Tensor& scale);

/// Computes softmax_sums() and the gradient in one call. REQUIRES: `logits` has the whole vocabulary.
SoftmaxSums turn_into_cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets,
                                             const at::Tensor& scale);

}  // namespace argosy::ops
