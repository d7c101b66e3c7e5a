// Products of groups of rows, each group with its own matrices: the linear layers of experts. The rows of a
// group are adjacent: group g has the counts[g] rows after those of the groups before. It may have none.
//
// `weights` are one or more layers that read the same x, whose outputs are adjacent columns. Each is a stack
// of the groups' matrices, [groups, out, in] or [groups * out, in], contiguous. `counts` is [groups] int64 on
// the device of x. Tensors without data have no counts to read: each group counts as having an equal part of
// the rows.
//
// On a processor, a group's products have the bits of ops/matmul.h. On a GPU, LibTorch's grouped product
// multiplies all groups in bf16 at once, and nothing is read on the host; dx of several layers is rounded
// after each layer. Other types, and rows whose length is not a multiple of 8, are multiplied group by group,
// for which the host waits for the counts.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

/// Returns y [rows, out] = x W^T, where W is the matrix of the row's group.
at::Tensor grouped_linear(const at::Tensor& x, at::TensorList weights, const at::Tensor& counts);

/// Returns the gradient of x: dy W.
at::Tensor grouped_input_gradient(const at::Tensor& dy, at::TensorList weights, const at::Tensor& counts);

/// out[g] = dy^T x over the rows of group g, or out[g] += with `accumulate`. `out` has the shape of a weight,
/// and may have a wider type than dy and x. If all groups are multiplied at once, the products are rounded to
/// the type of dy and x before they are added: LibTorch 2.11 refuses another type of the result. The
/// alternative, cuBLASLt's product of each group added to its fp32 sum, needs the counts on the host and a
/// launch for each expert (128 experts of 768 x 2048: each fills a third of an H200), for rounding errors of
/// 2^-9 of a microbatch's gradient that are independent of each other.
void grouped_weight_gradient(const at::Tensor& out, const at::Tensor& dy, const at::Tensor& x,
                             const at::Tensor& counts, bool accumulate);
/// Returns the products before they are added, [groups, out, in]. REQUIRES: all groups are multiplied at once.
at::Tensor grouped_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& counts);

/// Whether all groups are multiplied at once, for rows like `a` and others like `b`.
bool multiplies_groups_at_once(const at::Tensor& a, const at::Tensor& b);

/// The rows of `num_groups` groups from `first_group` on, of `num_rows` in all. The host waits for counts on a
/// GPU.
struct GroupRows {
    int64_t first, count;
};
GroupRows rows_of_groups(const at::Tensor& counts, int64_t num_rows, int64_t first_group, int64_t num_groups);

}  // namespace argosy::ops
