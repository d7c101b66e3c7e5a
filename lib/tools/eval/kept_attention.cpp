#include "eval/kept_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace argosy::eval {

void attend(const ContinuedRows& rows, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
            const ops::AttentionShape& shape, const at::Tensor& keys, const at::Tensor& values,
            const at::Tensor& y) {
    const auto& [row, begin, count] = rows;
    const int64_t num_keys = begin + count;
    keys.narrow(0, begin, count).copy_(k.narrow(0, row, count));
    values.narrow(0, begin, count).copy_(v.narrow(0, row, count));
    const ops::AttentionShape part{.num_sequences = 1,
                                   .q_len = count,
                                   .k_len = num_keys,
                                   .head_dim = shape.head_dim,
                                   .q_offset = begin,
                                   .window = shape.window};
    const ops::AttentionOutput found = ops::attention(q.narrow(0, row, count), keys.narrow(0, 0, num_keys),
                                                      values.narrow(0, 0, num_keys), part);
    y.narrow(0, row, count).copy_(found.y);
}

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
        const int64_t shared = batch_.num_shared[i], num_rows = batch_.windows[i].num_inputs - shared;
        attend({row, shared, num_rows}, q, k, v, shape, keys, values, y);
        row += num_rows;
    }
    y.narrow(0, row, y.size(0) - row).zero_();
    return {.y = y, .log_sum_exp = {}};
}

}  // namespace argosy::eval
