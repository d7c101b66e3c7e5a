// Causal softmax attention of the query heads that share one key head, within one sequence:
//   y_i = sum over the visible keys j of softmax_j(q_i k_j * scale) v_j.
// The visible keys are those from AttentionShape::first_key(i) to the query's own place. A query without a
// visible key has y = 0 and log_sum_exp = -infinity. Blocks of scores without a visible key are skipped.
//
// Cost: each query head has num_keys^2 / 2 scores if every query sees all keys before it. For each score, the
// forward pass takes an exponential and two products of 2 * head_dim FLOP, the backward pass an exponential
// and five such products. Blocks of queries and keys are so small that operands, scores and sums stay in the
// L2 cache; the matrix of all scores is never stored. A thread's scratch memory takes 8 bytes in the forward
// pass and 20 in the backward pass for each of num_keys * head_dim elements (less with bf16 panels), and up
// to 1 MiB for blocks. The forward pass of one or two queries is bound by memory: it reads keys and values
// where they are, once for each query head, and needs 4 bytes for each key.
//
// A call computes the whole group of heads or, so that several threads share it, a part of the group: y of
// some blocks of queries, or dk and dv of some blocks of keys with what these keys add to dq. Each sum has
// one order, so that the bits do not depend on the parts. A NaN in k or v also reaches queries up to one tile
// before its token, although their weight for that token is 0.
//
// The parts of a backward pass share fp32 sums of dq. A sum starts with the last keys that its block of
// queries sees and ends with the first ones. A part waits for its turn at each block; the part with the first
// visible keys writes dq. Each part goes through the queries in ascending order and, if the mask is causal,
// first meets those that see no later keys. The part with the next later keys is then always ahead: no part
// waits if all run at the same speed. A part waits only for parts with later keys.
#pragma once

#include <cstdint>
#include <limits>

namespace argosy::kernels {

inline constexpr int64_t kNoWindow = std::numeric_limits<int64_t>::max();
/// The number of queries, and of keys, in a block.
inline constexpr int64_t kAttentionBlock = 96;

/// Queries or keys of a sequence, whole blocks of them. The last block may be cut by the sequence's end.
struct TokenRange {
    int64_t begin, end;
    bool empty() const { return begin >= end; }
    /// Whether the block that begins at this token is in the range.
    bool has_block(int64_t first) const { return begin <= first && first < end; }
};

struct AttentionShape {
    int64_t num_queries, num_keys, head_dim;
    int64_t num_heads;  // query heads, which share the key head
    float scale;
    int64_t query_offset = 0;    // query i is at the place of key query_offset + i
    int64_t window = kNoWindow;  // a query sees at most so many keys, the last of them at its own place
    const int64_t* positions = nullptr;  // [num_queries]: positions in the documents; null: one document

    /// The first key that a query sees; past the end of the keys if it sees none. Ascending in `query`.
    int64_t first_key(int64_t query) const {
        int64_t reach = window - 1;  // the number of keys before its own
        if (positions != nullptr && positions[query] < reach) reach = positions[query];
        const int64_t place = query_offset + query;
        return place > reach ? place - reach : 0;
    }
    /// The keys that some of the queries see. Queries past the last one are ignored. REQUIRES: first_query <
    /// num_queries.
    TokenRange visible_keys(int64_t first_query, int64_t count) const {
        const int64_t end_query = first_query + count < num_queries ? first_query + count : num_queries;
        const int64_t end_place = query_offset + end_query;
        return {first_key(first_query) / kAttentionBlock * kAttentionBlock,
                end_place < num_keys ? end_place : num_keys};
    }

    int64_t num_query_blocks() const { return (num_queries + kAttentionBlock - 1) / kAttentionBlock; }
    /// The number of floats in the sums of dq of a head's block of queries: columns of head_dim floats, with
    /// room for whole tiles of up to 32 rows, and then whole vectors of up to 16.
    int64_t size_of_sums() const { return kAttentionBlock * ((head_dim + 46) / 16 * 16); }
};

/// A matrix of one head or of several side by side: the row of token t begins at data + t * stride.
template <class T>
struct TokenRows {
    T* data = nullptr;
    int64_t stride = 0;
};

template <class T>
struct Attention {
    AttentionShape shape;
    TokenRange queries;  // whose y and log_sum_exp are computed
    TokenRows<const T> q, k, v;
    TokenRows<T> y;
    float* log_sum_exp;            // [num_heads, num_queries], of scaled scores
    TokenRows<float> wide_y = {};  // unless data is null: gets y, which is then not rounded to T
};

/// The largest scores above a threshold: raises largest[h] to the largest score of query head h over all
/// sequences, if that is above the threshold. ops/largest_scores.cpp has the loop for processors.
template <class T, class Sum = float>
struct LargestScores {
    int64_t num_sequences, num_key_heads;
    AttentionShape shape;     // of each sequence; `positions` are those of all queries, in order
    TokenRows<const T> q, k;  // all sequences and heads
    const Sum* log_sum_exp;   // [num_sequences, query heads, num_queries]
    Sum threshold;            // at least 0
    Sum* largest;             // [query heads]
};

/// Memory that the parts of a group share in the backward pass, for each head and block of queries:
/// [num_heads, num_query_blocks()].
struct SharedSums {
    float* dq = nullptr;            // size_of_sums() floats each
    int64_t* keys_added = nullptr;  // the number of keys in the sums. 0 before the first part runs
};
/// A bit that is set in keys_added after a part failed, so that no other part waits for it.
inline constexpr int64_t kNoWait = int64_t{1} << 60;

template <class T>
struct AttentionBackward {
    AttentionShape shape;
    TokenRange keys;  // of which the call computes dk, dv and the part of dq
    TokenRows<const T> dy, q, k, v, y;
    const float* log_sum_exp;
    TokenRows<T> dq, dk, dv;
    SharedSums sums = {};  // required unless `keys` are all keys
};

}  // namespace argosy::kernels
