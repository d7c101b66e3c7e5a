// Look-up of a table's rows by token. The table may be cut over ranks: this rank holds rows [begin, begin +
// table.size(0)).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

/// Returns [tokens, dim]. Tokens of other ranks get zeros, so the sum of the ranks' results is the look-up.
at::Tensor embedding(const at::Tensor& table, const at::Tensor& tokens, int64_t begin);

/// out[token - begin] += dx for every token of this rank, in the type of `out` and in token order.
void add_embedding_gradient(at::Tensor& out, const at::Tensor& dx, const at::Tensor& tokens, int64_t begin);

}  // namespace argosy::ops
