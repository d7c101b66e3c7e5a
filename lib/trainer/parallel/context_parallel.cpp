#include "parallel/context_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

#include "ops/documents.h"
#include "ops/numerics.h"

// Names: a chunk is a range of a sequence that one rank holds; "own" is this rank's. Keys and values travel
// together as kv [num_sequences, tokens, k columns + v columns].
namespace argosy::parallel {

namespace {

using comm::OpKind;
using layout::Range;
using ops::AttentionGradient;
using ops::AttentionOutput;
using ops::AttentionShape;

/// Rows of tokens [num_sequences * n, columns] as [num_sequences, n, columns].
at::Tensor in_sequences(const at::Tensor& rows, int64_t num_sequences) {
    return rows.reshape({num_sequences, rows.size(0) / num_sequences, -1});
}

/// Some tokens of every sequence, as rows.
at::Tensor rows_of(const at::Tensor& in_sequences, const Range& tokens) {
    const at::Tensor part = in_sequences.narrow(1, tokens.begin, tokens.size);
    return part.reshape({part.size(0) * part.size(1), part.size(2)});
}

struct Chunk {
    Range place;  // in the sequence
    Range own;    // among its rank's tokens of a sequence
};
std::vector<Chunk> chunks_of(const std::vector<Range>& places) {
    std::vector<Chunk> chunks;
    for (int64_t begin = 0; const Range& place : places) {
        chunks.push_back({place, {begin, place.size}});
        begin += place.size;
    }
    return chunks;
}

/// This rank's queries of one chunk, with what attention and its backward pass need.
struct Queries : Chunk {
    at::Tensor q, positions;
    at::Tensor document_offsets = {};
    at::Tensor dy = {};
    AttentionOutput output = {};

    AttentionShape shape(const AttentionShape& of_rank, const Range& keys) const {
        AttentionShape result = of_rank;
        result.q_len = place.size;
        result.k_len = keys.size;
        result.q_offset = place.begin - keys.begin;
        result.document_offsets = document_offsets;
        return result;
    }
    /// The keys up to the last query; later ones are invisible.
    Range seen() const { return {0, place.begin + place.size}; }
    bool see(const Range& keys) const { return keys.begin < seen().size; }
};

/// Splits this rank's rows into its chunks.
std::vector<Queries> split(const at::Tensor& q, const at::Tensor& positions, const std::vector<Range>& places,
                           const AttentionShape& shape) {
    std::vector<Queries> result;
    for (const Chunk& chunk : chunks_of(places)) {
        result.push_back({chunk, rows_of(in_sequences(q, shape.num_sequences), chunk.own),
                          rows_of(in_sequences(positions, shape.num_sequences), chunk.own).flatten()});
        if (!shape.document_offsets.defined()) continue;
        result.back().document_offsets =
            ops::document_offsets_of_part(shape.document_offsets, shape.q_len, chunk.own);
    }
    return result;
}

void add_gradients(std::vector<Queries>& queries, const at::Tensor& dy, const AttentionOutput& output,
                   int64_t num_sequences) {
    for (Queries& each : queries) {
        each.dy = rows_of(in_sequences(dy, num_sequences), each.own);
        each.output.y = rows_of(in_sequences(output.y, num_sequences), each.own);
        each.output.log_sum_exp = output.log_sum_exp.narrow(2, each.own.begin, each.own.size).contiguous();
    }
}

/// The outputs of all chunks, as rows of this rank's tokens in the type of q.
AttentionOutput joined(const std::vector<Queries>& queries, const at::Tensor& q, int64_t num_sequences) {
    std::vector<at::Tensor> y, log_sum_exp;
    for (const Queries& each : queries) {
        y.push_back(in_sequences(each.output.y, num_sequences));
        log_sum_exp.push_back(each.output.log_sum_exp);
    }
    return {.y = at::cat(y, 1).reshape(q.sizes()).to(q.scalar_type()),
            .log_sum_exp = at::cat(log_sum_exp, 2)};
}

at::Tensor joined(const std::vector<at::Tensor>& dq_of_chunks, const at::Tensor& q, int64_t num_sequences) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& dq : dq_of_chunks) parts.push_back(in_sequences(dq, num_sequences));
    return at::cat(parts, 1).reshape(q.sizes()).to(q.scalar_type());
}

/// Keys and values as one tensor that travels, and their columns as rows of tokens.
at::Tensor packed(const at::Tensor& k, const at::Tensor& v, int64_t num_sequences) {
    return in_sequences(at::cat({k, v}, 1), num_sequences);
}
struct KeysAndValues {
    KeysAndValues(const at::Tensor& kv, const Range& tokens) {
        const at::Tensor rows = rows_of(kv, tokens);
        k = rows.narrow(1, 0, rows.size(1) / 2);
        v = rows.narrow(1, rows.size(1) / 2, rows.size(1) / 2);
    }
    at::Tensor k, v;
};

/// Adds the gradients of some tokens' keys and values to dkv, in the accumulation type.
void add(const at::Tensor& dkv, const Range& tokens, const AttentionGradient& more) {
    const at::Tensor sum = dkv.narrow(1, tokens.begin, tokens.size);
    const int64_t columns = dkv.size(2) / 2;
    sum.narrow(2, 0, columns).add_(in_sequences(ops::widened(more.dk), dkv.size(0)));
    sum.narrow(2, columns, columns).add_(in_sequences(ops::widened(more.dv), dkv.size(0)));
}

at::Tensor zeros_like_sums(const at::Tensor& kv) {
    return at::zeros(kv.sizes(), kv.options().dtype(ops::accumulation_type(kv.scalar_type())));
}

AttentionGradient unpacked(at::Tensor dq, const at::Tensor& dkv, const at::Tensor& k) {
    const at::Tensor rows = dkv.reshape({k.size(0), -1}).to(k.scalar_type());
    return {std::move(dq), rows.narrow(1, 0, k.size(1)), rows.narrow(1, k.size(1), k.size(1))};
}

}  // namespace

std::unique_ptr<model::ContextAxis> make_context_axis(const ContextOptions& options, comm::Mesh& mesh,
                                                      int64_t seq_len) {
    if (mesh.degree(layout::Axis::Context) == 1) return std::make_unique<model::ContextAxis>();
    return std::make_unique<ContextParallelAxis>(options, mesh.group(layout::Axis::Context), seq_len);
}

ContextParallelAxis::ContextParallelAxis(const ContextOptions& options, comm::Communicator& group,
                                         int64_t seq_len)
    : group_(group), rotation_(options.rotation), seq_len_(seq_len) {
    for (int rank = 0; rank < group.size(); ++rank) {
        parts_.push_back(layout::context_parts(options.balance, seq_len, group.size(), rank));
    }
    if (rotation_ == ContextOptions::Rotation::Ring)
        group_.open_channels();
    else
        group_.open_collectives(comm::Collectives::All);
}

at::Tensor ContextParallelAxis::gathered(const at::Tensor& kv, int64_t num_sequences) const {
    // 1. gather: [ranks, num_sequences, own tokens, columns]
    std::vector<int64_t> sizes = kv.sizes().vec();
    sizes.insert(sizes.begin(), group_.size());
    const at::Tensor by_rank = at::empty(sizes, kv.options());
    group_.run({.kind = OpKind::AllGather, .out = by_rank, .in = kv.contiguous()});
    // 2. copy each chunk to its place: [num_sequences, seq_len, columns]
    at::Tensor all = at::empty({num_sequences, seq_len_, kv.size(2)}, kv.options());
    for (int rank = 0; rank < group_.size(); ++rank) {
        for (const auto& [place, own] : chunks_of(parts_[rank])) {
            all.narrow(1, place.begin, place.size).copy_(by_rank[rank].narrow(1, own.begin, own.size));
        }
    }
    return all;
}

at::Tensor ContextParallelAxis::scattered(const at::Tensor& dkv) const {
    // [ranks, num_sequences, own tokens, columns]
    const at::Tensor by_rank =
        at::empty({group_.size(), dkv.size(0), dkv.size(1) / group_.size(), dkv.size(2)}, dkv.options());
    for (int rank = 0; rank < group_.size(); ++rank) {
        for (const auto& [place, own] : chunks_of(parts_[rank])) {
            by_rank[rank].narrow(1, own.begin, own.size).copy_(dkv.narrow(1, place.begin, place.size));
        }
    }
    at::Tensor own = at::empty(by_rank[0].sizes(), dkv.options());
    group_.run({.kind = OpKind::ReduceScatter, .out = own, .in = by_rank.flatten(0, 1)});
    return own;
}

/// Starts to send `out` to the next rank of the ring, and to receive `in` from the rank before.
comm::Pending ContextParallelAxis::exchange(const at::Tensor& out, const at::Tensor& in) const {
    const int size = group_.size(), rank = group_.rank();
    const comm::Op ops[] = {{.kind = OpKind::Send, .in = out, .peer = (rank + 1) % size},
                            {.kind = OpKind::Receive, .out = in, .peer = (rank + size - 1) % size}};
    return group_.submit(ops);
}

/// Keys and values of one rank after the other, which travel to the next rank of the ring in each turn.
class ContextParallelAxis::Ring {
  public:
    Ring(const ContextParallelAxis& axis, at::Tensor kv)
        : axis_(axis), kv_(kv.contiguous()), owner_(axis.group_.rank()) {}

    const at::Tensor& kv() const { return kv_; }
    int owner() const { return owner_; }

    /// Starts to send kv() to the next rank and to receive the previous rank's, unless this was the last
    /// turn.
    void start(int turn) {
        if (turn + 1 == axis_.group_.size()) return;
        next_ = at::empty_like(kv_);
        pending_ = axis_.exchange(kv_, next_);
    }
    /// Waits for what start() began.
    void finish() {
        pending_.wait();
        if (next_.defined()) kv_ = std::exchange(next_, {});
        owner_ = (owner_ + axis_.group_.size() - 1) % axis_.group_.size();
    }

  private:
    const ContextParallelAxis& axis_;
    at::Tensor kv_, next_;
    int owner_;
    comm::Pending pending_;
};

AttentionOutput ContextParallelAxis::attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               const AttentionShape& shape,
                                               const at::Tensor& positions) const {
    const int64_t num_sequences = shape.num_sequences;
    std::vector<Queries> queries = split(q, positions, parts_[group_.rank()], shape);
    const at::Tensor kv = packed(k, v, num_sequences);
    if (rotation_ == ContextOptions::Rotation::AllGather) {
        const at::Tensor all_kv = gathered(kv, num_sequences);
        for (Queries& each : queries) {
            const Range seen = each.seen();
            const KeysAndValues keys(all_kv, seen);
            each.output = ops::attention(each.q, keys.k, keys.v, each.shape(shape, seen), each.positions);
        }
        return joined(queries, q, num_sequences);
    }
    Ring ring(*this, kv);
    for (int turn = 0; turn < group_.size(); ++turn) {
        ring.start(turn);
        for (const Chunk& chunk : chunks_of(parts_[ring.owner()])) {
            const KeysAndValues keys(ring.kv(), chunk.own);
            for (Queries& each : queries) {
                if (!each.see(chunk.place)) continue;
                const AttentionOutput part = ops::attention_part(
                    each.q, keys.k, keys.v, each.shape(shape, chunk.place), each.positions);
                each.output = each.output.y.defined() ? ops::merge_attention(each.output, part) : part;
            }
        }
        ring.finish();
    }
    return joined(queries, q, num_sequences);
}

/// The backward pass of attention of this rank's queries, one part of the keys after the other.
class ContextParallelAxis::Backward {
  public:
    Backward(std::vector<Queries> queries, const AttentionShape& shape)
        : queries_(std::move(queries)), shape_(shape), dq_(queries_.size()) {}

    size_t num_queries() const { return queries_.size(); }
    Range seen(size_t i) const { return queries_[i].seen(); }

    /// Adds the gradients of the keys and values kv[chunk.own], by queries i, to dkv, and those of the
    /// queries to dq.
    void add_keys(size_t i, const Chunk& chunk, const at::Tensor& kv, const at::Tensor& dkv) {
        const KeysAndValues keys(kv, chunk.own);
        const Queries& each = queries_[i];
        const AttentionGradient gradient = ops::attention_backward(
            each.dy, each.q, keys.k, keys.v, each.output, each.shape(shape_, chunk.place), each.positions);
        const at::Tensor dq = ops::widened(gradient.dq);
        dq_[i] = dq_[i].defined() ? dq_[i].add_(dq) : dq;
        add(dkv, chunk.own, gradient);
    }
    /// The same by all queries that see the chunk.
    void add_keys(const Chunk& chunk, const at::Tensor& kv, const at::Tensor& dkv) {
        for (size_t i = 0; i < queries_.size(); ++i) {
            if (queries_[i].see(chunk.place)) add_keys(i, chunk, kv, dkv);
        }
    }
    at::Tensor dq(const at::Tensor& q) const { return joined(dq_, q, shape_.num_sequences); }

  private:
    std::vector<Queries> queries_;
    AttentionShape shape_;
    std::vector<at::Tensor> dq_;  // in the accumulation type
};

at::Tensor ContextParallelAxis::gathered_gradient(const at::Tensor& kv, Backward& backward) const {
    at::Tensor all_kv = gathered(kv, kv.size(0));
    const at::Tensor dkv = zeros_like_sums(all_kv);
    for (size_t i = 0; i < backward.num_queries(); ++i) {
        const Range seen = backward.seen(i);
        backward.add_keys(i, {seen, seen}, all_kv, dkv);
    }
    all_kv.reset();
    return scattered(dkv);
}

at::Tensor ContextParallelAxis::ring_gradient(const at::Tensor& kv, Backward& backward) const {
    // 1. while this rank's keys go to the next one: its last chunk
    const std::vector<Chunk> own = chunks_of(parts_[group_.rank()]);
    const at::Tensor dkv = zeros_like_sums(kv);
    Ring ring(*this, kv);
    ring.start(0);
    backward.add_keys(own.back(), kv, dkv);
    ring.finish();
    // 2. the other ranks' keys. Their sums follow them, one turn later.
    at::Tensor sums, received;
    comm::Pending exchanged;
    for (int turn = 1; turn < group_.size(); ++turn) {
        ring.start(turn);
        at::Tensor of_turn = zeros_like_sums(kv);
        for (const Chunk& chunk : chunks_of(parts_[ring.owner()]))
            backward.add_keys(chunk, ring.kv(), of_turn);
        ring.finish();
        exchanged.wait();
        sums = received.defined() ? of_turn.add_(received) : std::move(of_turn);
        received = at::empty_like(sums);
        exchanged = exchange(sums, received);
    }
    // 3. while the sums come home: the other chunk of this rank's keys, if there is one
    for (size_t i = 0; i + 1 < own.size(); ++i) backward.add_keys(own[i], kv, dkv);
    exchanged.wait();
    return dkv.add_(received);
}

AttentionGradient ContextParallelAxis::attention_backward(const at::Tensor& dy, const at::Tensor& q,
                                                          const at::Tensor& k, const at::Tensor& v,
                                                          const AttentionOutput& output,
                                                          const AttentionShape& shape,
                                                          const at::Tensor& positions) const {
    const int64_t num_sequences = shape.num_sequences;
    std::vector<Queries> queries = split(q, positions, parts_[group_.rank()], shape);
    add_gradients(queries, dy, output, num_sequences);
    const at::Tensor kv = packed(k, v, num_sequences);
    Backward backward(std::move(queries), shape);
    const at::Tensor dkv = rotation_ == ContextOptions::Rotation::Ring ? ring_gradient(kv, backward)
                                                                       : gathered_gradient(kv, backward);
    return unpacked(backward.dq(q), dkv, k);
}

}  // namespace argosy::parallel
