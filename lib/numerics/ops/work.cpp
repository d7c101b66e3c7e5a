#include "ops/work.h"

#include <algorithm>
#include <utility>

namespace argosy::ops {
namespace {

thread_local const WorkObserver::Observe* observer = nullptr;  // of the innermost WorkObserver

/// The pairs of a query and a key that it sees, for one head of one sequence without documents.
double visible_pairs(const AttentionShape& shape) {
    // The query at place p sees the keys up to p, but not those before p - window + 1.
    const int64_t num_keys = shape.k_len, end = shape.q_offset + shape.q_len;
    const int64_t window = std::min(shape.window, std::max<int64_t>(end, 0));
    const auto triangle = [](int64_t n) {
        return n > 0 ? 0.5 * static_cast<double>(n) * static_cast<double>(n + 1) : 0;
    };
    // The pairs of all queries at the places 0 to p - 1. Queries from num_keys + window - 1 on see no key.
    const auto pairs_before = [&](int64_t p) {
        p = std::min(p, num_keys + window - 1);
        return triangle(p) - triangle(p - num_keys) - triangle(p - window);
    };
    return pairs_before(end) - pairs_before(shape.q_offset);
}

double bytes_of(std::initializer_list<at::Tensor> tensors) {
    double bytes = 0;
    for (const at::Tensor& tensor : tensors) {
        if (tensor.defined()) bytes += static_cast<double>(tensor.nbytes());
    }
    return bytes;
}

}  // namespace

WorkObserver::WorkObserver(Observe observe)
    : observe_(std::move(observe)), outer_(std::exchange(observer, &observe_)) {}

WorkObserver::~WorkObserver() { observer = outer_; }

void note_product(const at::Tensor& out, const at::Tensor& operand, int64_t terms, bool in_long_blocks) {
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
         .terms = terms,
         .in_long_blocks = in_long_blocks});
}

void note_attention(WorkKind kind, const at::Tensor& q, const at::Tensor& k, const AttentionShape& shape,
                    bool holds_scores, bool by_flash) {
    if (!observer) return;
    const bool is_forward = kind == WorkKind::Attention;
    const int products = is_forward ? 2 : 5;  // of a head's queries and keys
    const int tensors = is_forward ? 2 : 4;   // like q: q, y, dy and dq; like k: k, v, dk and dv
    const auto heads = static_cast<double>(q.size(1) / shape.head_dim * shape.num_sequences);
    const auto element_bytes = static_cast<double>(c10::elementSize(accumulation_type(q.scalar_type())));
    (*observer)({.kind = kind,
                 .type = q.scalar_type(),
                 .flops = 2.0 * products * visible_pairs(shape) * heads * static_cast<double>(shape.head_dim),
                 .bytes = tensors * static_cast<double>(q.nbytes() + k.nbytes()),
                 .rows = shape.q_len,
                 .columns = q.size(1),
                 .terms = shape.head_dim,
                 .score_bytes = holds_scores
                                    ? heads * static_cast<double>(shape.q_len * shape.k_len) * element_bytes
                                    : 0,
                 .by_flash = by_flash});
}

void note_products(const Work& mean, std::initializer_list<at::Tensor> tensors) {
    if (!observer) return;
    Work all = mean;
    all.kind = WorkKind::Product;
    all.type = tensors.begin()->scalar_type();
    all.bytes = bytes_of(tensors);
    (*observer)(all);
}

void note_pass(std::initializer_list<at::Tensor> tensors) {
    if (!observer) return;
    (*observer)({.kind = WorkKind::Pass, .type = tensors.begin()->scalar_type(), .bytes = bytes_of(tensors)});
}

}  // namespace argosy::ops
