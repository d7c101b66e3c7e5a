// Rows of a table by token, where the table may be cut over ranks: this rank holds rows [begin, begin +
// table.size(0)).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

/// [tokens, dim]; zeros for tokens of other ranks, so that the ranks' results add up.
at::Tensor embedding(const at::Tensor& table, const at::Tensor& tokens, int64_t begin);

/// out[token - begin] += dx for every token of this rank. Sums in the type of `out`, in token order.
void add_embedding_gradient(at::Tensor& out, const at::Tensor& dx, const at::Tensor& tokens, int64_t begin);

}  // namespace argosy::ops
