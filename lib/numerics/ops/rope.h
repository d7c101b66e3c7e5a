// Rotary position embedding. A head's elements i and i + head_dim/2 form a pair (Hugging Face's order, so
// that exported weights need no permutation) that is rotated by position * frequency_i. A table may have
// fewer pairs: then the first 2 * pairs elements of a head rotate so, and the others do not change.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace argosy::ops {

/// Cosines and sines of every position and frequency, [seq_len, pairs] in the type of the options.
/// They are computed in fp64 on the processor, so that they are the same on every device; on meta, which has
/// no data, not at all. They are multiplied by an attention factor, so that a rotation also scales q and k.
struct RopeTable {
    at::Tensor cos, sin;
    int64_t head_dim = 0;  // 0: twice the number of pairs
};
RopeTable make_rope_table(const std::vector<double>& frequencies, double attention_factor, int64_t seq_len,
                          const at::TensorOptions& options);

/// Rotates the heads in x [tokens, heads * head_dim] by each token's position and writes the result to y,
/// which may be x. x and y may be some columns of a wider matrix. `positions`: [tokens], int64; undefined:
/// the tokens are whole sequences of the table's length.
void write_rope(const at::Tensor& y, const at::Tensor& x, const RopeTable& table,
                const at::Tensor& positions = {});

/// Writes the gradient of x (dy rotated back, and scaled as x was) to dx, which may be dy. dx and dy may be
/// some columns of a wider matrix.
void write_rope_backward(const at::Tensor& dx, const at::Tensor& dy, const RopeTable& table,
                         const at::Tensor& positions = {});

}  // namespace argosy::ops
