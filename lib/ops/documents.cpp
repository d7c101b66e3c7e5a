#include "ops/documents.h"

#include <ATen/ops/zeros.h>

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

}  // namespace argosy::ops
