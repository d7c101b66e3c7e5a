// Attention kernels for GPUs read the documents of a batch as offsets: a tensor with a fixed number of
// entries, so that a recorded graph can read another batch's documents.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace argosy::ops {

/// Writes the end of each document (the token after its last one), in their order, and fills the other
/// elements with the number of tokens. `positions`: each token's position in its document; a sequence of
/// seq_len tokens begins with a new document. Returns the number of documents. REQUIRES: as many `ends` as
/// positions.
int64_t write_document_ends(std::span<const int64_t> positions, int64_t seq_len, std::span<int64_t> ends);

/// The number of documents for which kernels make room if a batch has `num_documents`: a power of two, so
/// that it rarely changes.
int64_t document_capacity(int64_t num_documents);

/// Returns 0, then the ends of `capacity` documents: [capacity + 1], int32, on the device of `ends` (int64,
/// from write_document_ends). The documents behind the last one are empty. The host does not wait for that
/// device. REQUIRES: capacity is not below the number of documents.
at::Tensor document_offsets(const at::Tensor& ends, int64_t capacity);

}  // namespace argosy::ops
