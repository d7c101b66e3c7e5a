#include "eval/packed_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

namespace argosy::eval {

/// `keys` and `values` hold those of the current window, from its first input on. They still hold those of
/// the window before, so the shared ones are there already.
ops::AttentionOutput PackedAttention::attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const ops::AttentionShape& shape, const at::Tensor&) const {
    const int64_t longest_window = longest(batch_.windows);
    const at::Tensor keys = at::empty({longest_window, k.size(1)}, k.options()),
                     values = at::empty_like(keys);
    const at::Tensor y = at::empty(q.sizes(), q.options());
    int64_t row = 0;
    for (size_t i = 0; i < batch_.windows.size(); ++i) {
        const int64_t num_keys = batch_.windows[i].num_inputs, shared = batch_.num_shared[i];
        const int64_t num_rows = num_keys - shared;
        keys.narrow(0, shared, num_rows).copy_(k.narrow(0, row, num_rows));
        values.narrow(0, shared, num_rows).copy_(v.narrow(0, row, num_rows));
        const ops::AttentionShape part{.num_sequences = 1,
                                       .q_len = num_rows,
                                       .k_len = num_keys,
                                       .head_dim = shape.head_dim,
                                       .q_offset = shared,
                                       .window = shape.window};
        const ops::AttentionOutput found = ops::attention(
            q.narrow(0, row, num_rows), keys.narrow(0, 0, num_keys), values.narrow(0, 0, num_keys), part);
        y.narrow(0, row, num_rows).copy_(found.y);
        row += num_rows;
    }
    return {.y = y, .log_sum_exp = {}};
}

}  // namespace argosy::eval
