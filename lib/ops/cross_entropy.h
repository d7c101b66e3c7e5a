// The pieces of softmax cross-entropy over a vocabulary that may be cut over ranks: each works on this rank's
// columns [begin, begin + logits.size(1)) of the vocabulary; the caller combines maxima and sums over the
// ranks in between. A negative target marks a token that does not count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

/// [tokens], the largest logit of each row in the accumulation type (-inf where this rank has no columns).
at::Tensor row_maxima(const at::Tensor& logits);

/// [2, tokens]: the sum of exp(logit - maximum) over this rank's columns, and the target's logit - maximum
/// where the target lies among them, else 0. Both add up over the ranks.
at::Tensor softmax_sums(const at::Tensor& logits, const at::Tensor& maxima, const at::Tensor& targets,
                        int64_t begin);

/// The sum over counted tokens of log(sum exp) - target logit: a scalar in fp64.
at::Tensor cross_entropy_sum(const at::Tensor& sums, const at::Tensor& targets);

/// The gradient of scale * cross_entropy_sum with respect to `logits`, in the type of `logits`, zero for
/// tokens that do not count.
at::Tensor cross_entropy_gradient(const at::Tensor& logits, const at::Tensor& maxima, const at::Tensor& sums,
                                  const at::Tensor& targets, int64_t begin, double scale);

}  // namespace argosy::ops
