// The scores of experts, their shares in a sum, and the gradients of the losses that balance experts
// (model/balancing.h), as compositions of LibTorch's operations. Each has one order of its sums: the bits do
// not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/router.h"

namespace argosy::ops {

/// The scores of each token's experts, [tokens, experts] as the logits.
at::Tensor expert_scores(const at::Tensor& logits, const Router& router);
/// The gradient of the logits.
at::Tensor expert_scores_backward(const at::Tensor& dscores, const at::Tensor& scores, const Router& router);

/// Scores [tokens, any] divided by their sum of each token.
at::Tensor shares_of_sum(const at::Tensor& scores, const Router& router);
/// The gradient of these scores.
at::Tensor shares_of_sum_backward(const at::Tensor& dshares, const at::Tensor& scores, const Router& router);

/// The shares of all experts of a token: [tokens, experts].
at::Tensor score_shares(const at::Tensor& logits, const Router& router);

/// logsumexp(logits) of each token: [tokens].
at::Tensor log_sum_exp(const at::Tensor& logits);

/// The gradient of the logits of
///   the sum of dshares * shares, plus z_scale times the sum over tokens of logsumexp(logits)^2.
/// Undefined dshares: without the first term.
at::Tensor balance_backward(const at::Tensor& dshares, double z_scale, const at::Tensor& logits,
                            const Router& router);

}  // namespace argosy::ops
