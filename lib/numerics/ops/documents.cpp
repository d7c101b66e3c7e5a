#include "ops/documents.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace argosy::ops {

int64_t write_document_ends(std::span<const int64_t> positions, int64_t seq_len, std::span<int64_t> ends) {
    ARGOSY_CHECK(ends.size() == positions.size() && seq_len > 0, "{} ends of {} positions", ends.size(),
                 positions.size());
    const auto num_tokens = static_cast<int64_t>(positions.size());
    int64_t num_documents = 0;
    for (int64_t token = 1; token < num_tokens; ++token) {
        const bool begins = token % seq_len == 0 || positions[token] != positions[token - 1] + 1;
        if (begins) ends[num_documents++] = token;
    }
    std::fill(ends.begin() + num_documents, ends.end(), num_tokens);
    return num_tokens == 0 ? 0 : num_documents + 1;
}

int64_t document_capacity(int64_t num_documents) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_documents)));
}

at::Tensor document_offsets(const at::Tensor& ends, int64_t capacity) {
    // A batch has no more documents than tokens; more room than that has empty documents behind the last one.
    const int64_t num_ends = std::min(capacity, ends.numel());
    at::Tensor offsets = at::zeros({capacity + 1}, ends.options().dtype(at::kInt));
    offsets.narrow(0, 1, num_ends).copy_(ends.narrow(0, 0, num_ends));
    if (capacity > num_ends) {
        offsets.narrow(0, 1 + num_ends, capacity - num_ends).copy_(offsets.narrow(0, num_ends, 1));
    }
    return offsets;
}

namespace {

/// The first token of each of num_sequences sequences.
at::Tensor first_tokens(int64_t num_sequences, int64_t num_tokens, const at::TensorOptions& options) {
    return at::arange(num_sequences, options).mul_(num_tokens);
}

/// Offsets [num_sequences, n], each counted from its sequence's first token, over the tokens of all
/// sequences. A segment ends where the next sequence begins, so what lies between two sequences is an empty
/// segment.
at::Tensor over_all_sequences(const at::Tensor& offsets, int64_t num_tokens) {
    const at::Tensor first = first_tokens(offsets.size(0), num_tokens, offsets.options());
    return (offsets + first.unsqueeze(1)).flatten().to(at::kInt);
}

at::Tensor merged(const at::Tensor& offsets, const at::Tensor& more) {
    return std::get<0>(at::cat({offsets, more.to(offsets.scalar_type())}).sort());
}

}  // namespace

at::Tensor document_offsets_of_part(const at::Tensor& offsets, int64_t num_tokens,
                                    const layout::Range& part) {
    const at::Tensor sequence = offsets.div(num_tokens, "floor");
    return (offsets - sequence * num_tokens - part.begin).clamp_(0, part.size) + sequence * part.size;
}

Segments segments_to_queries(const at::Tensor& offsets, const at::Tensor& positions, int64_t num_queries,
                             int64_t num_keys) {
    const int64_t distance = num_keys - num_queries;
    // 1. a document's last query is at the place of its last key
    const at::Tensor sequences_begun = (offsets + (num_queries - 1)).div(num_queries, "floor");
    const at::Tensor key_ends = offsets + sequences_begun * distance;
    // 2. in front of each sequence's first query: the keys before its document, without a query
    const at::Tensor first = positions.view({-1, num_queries}).select(1, 0);
    const at::Tensor earlier = (distance - first).clamp_min_(0);
    const int64_t num_sequences = first.size(0);
    return {merged(offsets, first_tokens(num_sequences, num_queries, first.options())),
            merged(key_ends, first_tokens(num_sequences, num_keys, first.options()) + earlier)};
}

Segments segments_before_queries(const at::Tensor& positions, int64_t num_queries, int64_t num_keys,
                                 int64_t distance) {
    // 1. the key at which the document of each query begins: [num_sequences, num_queries]
    const at::Tensor begins =
        at::arange(distance, distance + num_queries, positions.options()) - positions.view({-1, num_queries});
    // 2. the keys before that of the first query, and the queries of documents that have keys
    const at::Tensor earlier = begins.select(1, 0).clamp(0, num_keys), seeing = begins.lt(num_keys).sum(1);
    const at::Tensor none = at::zeros_like(earlier);
    return {
        over_all_sequences(at::stack({none, none, seeing, at::full_like(none, num_queries)}, 1), num_queries),
        over_all_sequences(
            at::stack({none, earlier, at::full_like(none, num_keys), at::full_like(none, num_keys)}, 1),
            num_keys)};
}

}  // namespace argosy::ops
