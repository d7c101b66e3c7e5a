// Attention kernels for GPUs read the documents of a batch as offsets: a tensor with a fixed number of
// entries, so that a recorded graph can read another batch's documents.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "layout/slab.h"

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

// Ranks of a context axis have parts of sequences: a part of the queries meets a part of the keys. Kernels
// then read segments (gpu/attention.h): those of a document, and others for queries without keys and for keys
// without queries, because the segments cover both. All are computed on the device of their arguments.

/// `offsets`: document_offsets() of sequences of num_tokens tokens. Returns those over the tokens `part` of
/// each sequence. Documents outside of the part are empty. REQUIRES: a document begins at the part's first
/// token.
at::Tensor document_offsets_of_part(const at::Tensor& offsets, int64_t num_tokens, const layout::Range& part);

struct Segments {
    at::Tensor query_offsets, key_offsets;
};
/// The queries are the last tokens of the keys. `offsets`: document_offsets_of_part() of the queries;
/// `positions`: the position of each query in its document. The segments are the documents and, in front of
/// each sequence, the keys before the document of its first query.
Segments segments_to_queries(const at::Tensor& offsets, const at::Tensor& positions, int64_t num_queries,
                             int64_t num_keys);
/// All keys precede the queries: the first query is `distance` tokens after the first key. One document at
/// most has both. A sequence has three segments: earlier keys, that document, later queries.
Segments segments_before_queries(const at::Tensor& positions, int64_t num_queries, int64_t num_keys,
                                 int64_t distance);

}  // namespace argosy::ops
