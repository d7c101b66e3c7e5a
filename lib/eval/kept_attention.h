// Attention of rows that continue a sequence whose keys and values are kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/attention.h"

namespace argosy::eval {

/// Rows [row, row + count) of a batch: the tokens after the first `begin` tokens of their sequence.
struct ContinuedRows {
    int64_t row, begin, count;
};

/// Keeps the rows' keys and values behind the first `begin` ones of `keys` and `values`, and writes the rows'
/// attention to all of them to the rows of y. `shape` has the head_dim and the window.
void attend(const ContinuedRows& rows, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
            const ops::AttentionShape& shape, const at::Tensor& keys, const at::Tensor& values,
            const at::Tensor& y);

}  // namespace argosy::eval
