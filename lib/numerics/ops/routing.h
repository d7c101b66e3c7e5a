// Which experts a token goes to, and with what weights; and rows of tokens in the order of their experts.
//
// A token has top_k slots, one for each of its experts. Slot s of token t has the number t * top_k + s. An
// expert computes its slots together, so the rows of a layer's experts are sorted by expert, then by slot
// number.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/router.h"

namespace argosy::ops {

/// The choice for some tokens. Equal scores: the lower number comes first.
struct Routing {
    at::Tensor experts;  // [tokens, top_k] int32, by falling score
    at::Tensor weights;  // [tokens, top_k], in the type of the logits
    at::Tensor order;    // [tokens * top_k] int32: row r is slot order[r]
    at::Tensor counts;   // [num_experts] int64: the rows of each expert
};

/// `logits` is [tokens, num_experts] in fp32 or fp64. `bias` [num_experts] is added to the scores for the
/// choice only; undefined: none. On a GPU, nothing is read on the host.
Routing route(const at::Tensor& logits, const Router& router, const at::Tensor& bias = {});

/// A choice that does not look at the scores: slot s of token t goes to expert (first + t * top_k + s) modulo
/// the number of experts. The weights follow from the scores of these experts, as those of route(). For
/// benchmarks: on tensors without data it allocates less than on others.
Routing route_in_turn(const at::Tensor& logits, const Router& router, int64_t first);

/// Returns the gradient of the logits. The choice of the experts has none.
at::Tensor route_backward(const at::Tensor& dweights, const at::Tensor& logits, const Routing& routing,
                          const Router& router);

// Rows of tokens [tokens, dim] and rows in another order [tokens * num_slots, dim]. Each function is the
// other's backward pass. With num_slots = 1 they permute rows: numbers of slots, such as weights, as [slots,
// 1].

/// Row r is x[order[r] / num_slots].
at::Tensor permute(const at::Tensor& x, const at::Tensor& order, int64_t num_slots);

/// Returns for each token the sum of its slots' rows. The terms are added in the order of the slots, in the
/// accumulation type, and the sum is rounded once.
at::Tensor combine(const at::Tensor& y, const at::Tensor& order, int64_t num_slots);

}  // namespace argosy::ops
