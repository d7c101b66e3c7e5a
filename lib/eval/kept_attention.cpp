#include "eval/kept_attention.h"

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

}  // namespace argosy::eval
