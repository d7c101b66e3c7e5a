#include "ops/work.h"

#include <algorithm>
#include <utility>

namespace argosy::ops {
namespace {

thread_local const WorkObserver::Observe* observer = nullptr;  // of the innermost WorkObserver

/// The pairs of a query and a key that it sees, for one head of one sequence without documents.
double visible_pairs(const AttentionShape& shape) {
    double pairs = 0;
    const auto reach = static_cast<double>(std::min(shape.window, shape.k_len + shape.q_len));
    // Query i sees the keys from max(0, place - window + 1) to its own place, which may be outside of the
    // keys.
    for (int64_t i = 0; i < shape.q_len; ++i) {
        const auto place = static_cast<double>(shape.q_offset + i);
        const double first = std::max(0.0, place - reach + 1),
                     last = std::min(place, static_cast<double>(shape.k_len - 1));
        pairs += std::max(0.0, last - first + 1);
    }
    return pairs;
}

}  // namespace

WorkObserver::WorkObserver(Observe observe)
    : observe_(std::move(observe)), outer_(std::exchange(observer, &observe_)) {}

WorkObserver::~WorkObserver() { observer = outer_; }

void note_product(const at::Tensor& out, const at::Tensor& operand, int64_t terms) {
    if (!observer) return;
    const int64_t rows = out.size(0), columns = out.size(1);
    const auto operands = static_cast<double>((rows + columns) * terms);
    (*observer)(
        {.kind = WorkKind::Product,
         .type = operand.scalar_type(),
         .flops = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(terms),
         .bytes = operands * static_cast<double>(operand.itemsize()) + static_cast<double>(out.nbytes()),
         .rows = rows,
         .columns = columns,
         .terms = terms});
}

void note_attention(WorkKind kind, const at::Tensor& q, const at::Tensor& k, const AttentionShape& shape) {
    if (!observer) return;
    const int passes = kind == WorkKind::Attention ? 2 : 5;  // products of a head's queries and keys
    const auto heads = static_cast<double>(q.size(1) / shape.head_dim * shape.num_sequences);
    (*observer)({.kind = kind,
                 .type = q.scalar_type(),
                 .flops = 2.0 * passes * visible_pairs(shape) * heads * static_cast<double>(shape.head_dim),
                 .bytes = passes * static_cast<double>(q.nbytes() + k.nbytes()),
                 .rows = shape.q_len,
                 .columns = q.size(1),
                 .terms = shape.head_dim});
}

void note_pass(std::initializer_list<at::Tensor> tensors) {
    if (!observer) return;
    double bytes = 0;
    for (const at::Tensor& tensor : tensors) {
        if (tensor.defined()) bytes += static_cast<double>(tensor.nbytes());
    }
    (*observer)({.kind = WorkKind::Pass, .type = tensors.begin()->scalar_type(), .bytes = bytes});
}

}  // namespace argosy::ops
