// What balances experts: a choice in turn, and the shares that experts have in the scores of a token, from
// which losses are made (model/balancing.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/router.h"
#include "ops/routing.h"

namespace argosy::ops {

/// A choice that does not look at the scores: slot s of token t goes to expert (first + t * top_k + s) modulo
/// the number of experts. Its weights follow from the scores of these experts, as those of route(). For
/// benchmarks: on tensors without data it allocates less than on others.
Routing route_in_turn(const at::Tensor& logits, const Router& router, int64_t first);

/// The scores of each token divided by their sum: [tokens, experts].
at::Tensor score_shares(const at::Tensor& logits, const Router& router);

/// logsumexp(logits) of each token: [tokens].
at::Tensor log_sum_exp(const at::Tensor& logits);

/// The gradient of the logits of
///   the sum of dshares * shares, plus z_scale times the sum over tokens of logsumexp(logits)^2.
/// Undefined dshares: without the first term.
at::Tensor balance_backward(const at::Tensor& dshares, double z_scale, const at::Tensor& logits,
                            const Router& router);

}  // namespace argosy::ops
