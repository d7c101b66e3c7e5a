// The backward pass of attention. P is the softmax of the scores S, and m_i = dy_i y_i equals the sum over j
// of P_ij dP_ij. The gradients are
//   dV = P^T dY,  dP = dY V^T,  dS_ij = P_ij (dP_ij - m_i),  dQ = scale dS K,  dK = scale dS^T Q.
// P is recomputed from S and log_sum_exp. The kernel computes strips of P^T and dS^T. The rows of both strips
// are rows of panels of A for dV and dK, and a strip of dS^T is a panel of B for dQ^T = K^T dS^T.
#include <sched.h>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/kernels.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

template <class T>
struct Buffers {
    using Tile = TileOf<T>;
    using Element = typename Tile::Element;

    explicit Buffers(const AttentionShape& shape) : extents(shape) {
        allocate_in_scratch([&](Arena& arena) { allocate_arrays(arena, shape.size_of_sums()); });
    }

    void allocate_arrays(Arena& arena, int64_t size_of_sums) {
        const int64_t tokens = extents.num_blocks * kBlock, panel_rows = Extents<Tile>::kPanelRows;
        for (Element** panels : {&keys, &values}) {
            *panels = arena.allocate<Element>(extents.num_blocks * panel_rows * extents.depth);
        }
        keys_transposed = arena.allocate<Element>(tokens * extents.rows);
        for (float** sums : {&dkeys, &dvalues}) {
            *sums = arena.allocate<float>((tokens + Tile::kRows) * extents.columns);
        }
        for (Element** panels : {&queries, &doutputs})
            *panels = arena.allocate<Element>(kBlock * extents.depth);
        for (Element** panels : {&token_queries, &token_doutputs}) {
            *panels = arena.allocate<Element>(kBlock * extents.columns);
        }
        dqueries = arena.allocate<float>(size_of_sums);
        for (float** values_of_queries : {&negative_log_sums, &means, &scales}) {
            *values_of_queries = arena.allocate<float>(kBlock);
        }
        for (float** strip : {&weights, &dscores})
            *strip = arena.allocate<float>(panel_rows * Tile::kColumns);
        for (Element** panels : {&weight_panels, &dscore_panels}) {
            *panels = arena.allocate<Element>(panel_rows * kBlock);
        }
    }

    Extents<Tile> extents;
    Element *keys, *values;                     // per block, panels of A, k = head_dim
    Element* keys_transposed;                   // per block, panels of A, k = keys
    float *dkeys, *dvalues;                     // [tokens, columns]
    Element *queries, *doutputs;                // of a block, panels of B, k = head_dim
    Element *token_queries, *token_doutputs;    // of a block, panels of B, k = queries
    float* dqueries;                            // of a block, unless parts of the group share the sums
    float *negative_log_sums, *means, *scales;  // of each query of a block
    float *weights, *dscores;                   // a strip
    Element *weight_panels, *dscore_panels;     // of a pair of blocks, panels of A, k = queries
};

/// Waits until a count that other threads raise is at least `wanted`. Yields after some microseconds, because
/// there may be more threads than processors.
void wait_for(const int64_t* count, int64_t wanted) {
    constexpr int kSpins = 1000;
    for (int i = 0; __atomic_load_n(count, __ATOMIC_ACQUIRE) < wanted; ++i) {
        if (i >= kSpins) {
            sched_yield();
            continue;
        }
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
}

template <class T>
class Backward {
    using Tile = TileOf<T>;
    using Words = typename Tile::Words;
    using Element = typename Tile::Element;
    static constexpr int64_t kColumns = Tile::kColumns;
    static constexpr int64_t kRows = Tile::kRows;

  public:
    explicit Backward(const AttentionBackward<T>& args)
        : args_(args), shape_(args.shape), buffers_(args.shape) {}

    void run() {
        for (int64_t i = 0; i < kBlock; ++i) buffers_.scales[i] = shape_.scale;
        clear_sums_of_keys();
        const TokenRange keys = seen_of(shape_.visible_keys(0, shape_.num_queries));
        for (int64_t first = keys.begin; first < keys.end; first += kBlock) pack_keys(first);
        for (int64_t head = 0; head < shape_.num_heads; ++head) {
            for (int64_t first = 0; first < shape_.num_queries; first += kBlock) differentiate(head, first);
        }
        write_keys();
    }

  private:
    bool is_shared() const { return args_.sums.dq != nullptr; }
    /// The visible keys that are among those of this call.
    TokenRange seen_of(TokenRange visible) const {
        return {larger(visible.begin, args_.keys.begin), smaller(visible.end, args_.keys.end)};
    }

    void clear_sums_of_keys() {
        const int64_t columns = buffers_.extents.columns;
        for (float* sums : {buffers_.dkeys, buffers_.dvalues}) {
            for (int64_t i = args_.keys.begin * columns; i < (args_.keys.end + kRows) * columns; ++i)
                sums[i] = 0;
        }
    }
    void write_keys() {
        for (int64_t token = args_.keys.begin; token < args_.keys.end; ++token) {
            write_row(buffers_.dkeys + token * buffers_.extents.columns, shape_.scale, args_.dk, token);
            write_row(buffers_.dvalues + token * buffers_.extents.columns, 1.0f, args_.dv, token);
        }
    }

    int64_t keys_of_block(int64_t first) const { return smaller(kBlock, shape_.num_keys - first); }
    int64_t queries_of_block(int64_t first) const { return smaller(kBlock, shape_.num_queries - first); }
    int64_t panels_of_block(int64_t first) const {
        return first / kBlock * Extents<Tile>::kPanelRows * buffers_.extents.depth;
    }
    const Element* keys_transposed(int64_t first) const {
        return buffers_.keys_transposed + first * buffers_.extents.rows;
    }

    void pack_keys(int64_t first) {
        const T* k = args_.k.data + first * args_.k.stride;
        const T* v = args_.v.data + first * args_.v.stride;
        const int64_t num_keys = keys_of_block(first), head_dim = shape_.head_dim;
        pack_a<Tile>(Operand<T>{k, args_.k.stride, 1}, num_keys, head_dim,
                     buffers_.keys + panels_of_block(first));
        pack_a<Tile>(Operand<T>{v, args_.v.stride, 1}, num_keys, head_dim,
                     buffers_.values + panels_of_block(first));
        pack_a<Tile>(Operand<T>{k, 1, args_.k.stride}, head_dim, num_keys,
                     buffers_.keys_transposed + first * buffers_.extents.rows);
    }

    /// For one head and the block of queries that begins at `first_query`: adds the part of these queries to
    /// dk and dv, and the part of the call's keys to dq.
    void differentiate(int64_t head, int64_t first_query) {
        const TokenRange visible = shape_.visible_keys(first_query, queries_of_block(first_query)),
                         seen = seen_of(visible);
        const int64_t block = head * shape_.num_query_blocks() + first_query / kBlock;
        dqueries_ = is_shared() ? args_.sums.dq + block * shape_.size_of_sums() : buffers_.dqueries;
        if (visible.empty() && args_.keys.begin == 0) write_queries(head, first_query);
        if (seen.empty()) return;
        pack_block_of_queries(head, first_query);
        if (is_shared()) wait_for(args_.sums.keys_added + block, visible.end - seen.end);
        for (int64_t first_key = (seen.end - 1) / kBlock * kBlock; first_key >= seen.begin;
             first_key -= kBlock) {
            differentiate_block(first_query, first_key);
        }
        if (seen.begin == visible.begin) return write_queries(head, first_query);
        __atomic_fetch_add(args_.sums.keys_added + block, seen.end - seen.begin, __ATOMIC_RELEASE);
    }

    void differentiate_block(int64_t first_query, int64_t first_key) {
        int64_t end = 0;  // of the queries that see one of these keys
        for (int64_t column = 0; column < queries_of_block(first_query); column += kColumns) {
            const TokenRange visible = shape_.visible_keys(first_query + column, kColumns);
            if (!visible.has_block(first_key)) continue;
            differentiate_strip(first_query, column, first_key, first_key + kBlock >= visible.end);
            end = column + kColumns;
        }
        add_to_keys(buffers_.weight_panels, buffers_.token_doutputs, {first_query, end}, first_key,
                    buffers_.dvalues);
        add_to_keys(buffers_.dscore_panels, buffers_.token_queries, {first_query, end}, first_key,
                    buffers_.dkeys);
    }

    /// The sums of dq of a strip, transposed: [rows, kColumns].
    float* dqueries(int64_t column) const { return dqueries_ + column * buffers_.extents.rows; }

    void write_queries(int64_t head, int64_t first_query) {
        const int64_t num_queries = queries_of_block(first_query);
        for (int64_t column = 0; column < num_queries; column += kColumns) {
            if (shape_.visible_keys(first_query + column, kColumns).empty()) clear(column);
            T* dq = args_.dq.data + (first_query + column) * args_.dq.stride + head * shape_.head_dim;
            write_transposed<T>(dqueries(column), kColumns, buffers_.scales,
                                smaller(kColumns, num_queries - column), shape_.head_dim,
                                {dq, args_.dq.stride});
        }
    }

    void pack_block_of_queries(int64_t head, int64_t first_query) {
        const int64_t num_queries = queries_of_block(first_query), begin = head * shape_.head_dim;
        const T* q = args_.q.data + first_query * args_.q.stride + begin;
        const T* dy = args_.dy.data + first_query * args_.dy.stride + begin;
        const T* y = args_.y.data + first_query * args_.y.stride + begin;
        pack_queries<Tile>(Operand<T>{q, args_.q.stride, 1}, num_queries, shape_, buffers_.queries);
        pack_b<Tile>(Operand<T>{dy, args_.dy.stride, 1}, num_queries, shape_.head_dim, buffers_.doutputs);
        pack_b<Tile>(Operand<T>{q, 1, args_.q.stride}, shape_.head_dim, num_queries, buffers_.token_queries);
        pack_b<Tile>(Operand<T>{dy, 1, args_.dy.stride}, shape_.head_dim, num_queries,
                     buffers_.token_doutputs);
        const float* log_sums = args_.log_sum_exp + head * shape_.num_queries + first_query;
        for (int64_t i = 0; i < kBlock; ++i) {
            // Weights past the last query are 0, and those of a query that sees no key.
            const bool inside = i < num_queries, sees = inside && log_sums[i] != -__builtin_inff();
            buffers_.negative_log_sums[i] = sees ? -log_sums[i] : -__builtin_inff();
            buffers_.means[i] = inside ? dot(dy + i * args_.dy.stride, y + i * args_.y.stride) : 0.0f;
        }
    }

    float dot(const T* a, const T* b) const {
        Vector products = set(0.0f);
        for_each_vector(shape_.head_dim, [&](int64_t i, auto load, auto) {
            products = multiply_add(load(a + i), load(b + i), products);
        });
        return sum(products);
    }

    /// The gradients of a strip of queries that see no key.
    void clear(int64_t column) {
        for (int64_t i = 0; i < shape_.head_dim * kColumns; ++i) dqueries(column)[i] = 0;
    }

    /// Computes the weights and the gradients of the scores of one strip with a block of keys, and adds the
    /// part of these keys to dq. `is_first`: whether dq has no part yet.
    void differentiate_strip(int64_t first_query, int64_t column, int64_t first_key, bool is_first) {
        const int64_t depth = buffers_.extents.depth, num_keys = keys_of_block(first_key);
        const int64_t num_rows =
            keys_of_strip<Tile>(shape_.query_offset + first_query + column, first_key, num_keys);
        const int64_t panel_rows = round_up(num_rows, kRows);
        const int64_t computed_rows = smaller(num_rows, num_keys), size = packed_a_size<Tile>(1, depth);
        multiply_strip<Tile>(computed_rows, depth, {buffers_.keys + panels_of_block(first_key), size},
                             buffers_.queries + column * depth, buffers_.weights, /*accumulate=*/false);
        multiply_strip<Tile>(computed_rows, depth, {buffers_.values + panels_of_block(first_key), size},
                             buffers_.doutputs + column * depth, buffers_.dscores, /*accumulate=*/false);
        mask_strip<Tile>(buffers_.weights, shape_, first_query + column, first_key, num_keys, panel_rows);
        for (int64_t i = computed_rows * kColumns; i < panel_rows * kColumns; ++i) buffers_.dscores[i] = 0;
        for (int64_t row = 0; row < panel_rows; row += kRows) differentiate_panel(column, row);
        round_to_panel<Tile>(buffers_.dscores, num_rows);
        multiply_strip<Tile>(shape_.head_dim, num_rows,
                             {keys_transposed(first_key), packed_a_size<Tile>(1, num_keys)}, buffers_.dscores,
                             dqueries(column), /*accumulate=*/!is_first);
    }

    /// For kRows keys of a strip, turns scores into weights, and gradients of weights into gradients of
    /// scores. Writes both results to panels.
    void differentiate_panel(int64_t column, int64_t first_row) {
        const Vector scale = set(scale_of_scores<Tile>(shape_));
        const int64_t panel = first_row * kBlock + column * kRows;
        for (int64_t row = 0; row < kRows; ++row) {
            float* const weights = buffers_.weights + (first_row + row) * kColumns;
            float* const dscores = buffers_.dscores + (first_row + row) * kColumns;
            for (int64_t i = 0; i < kColumns; i += kLanes) {
                const Vector negative_log_sum = load(buffers_.negative_log_sums + column + i);
                const Vector weight =
                    exponential_to_zero<T>(multiply_add(load(weights + i), scale, negative_log_sum));
                store(weights + i, weight);
                store(dscores + i, weight * (load(dscores + i) - load(buffers_.means + column + i)));
            }
            for (int64_t i = 0; i < kColumns; i += Tile::kDepth) {
                const int64_t to = panel + i * kRows + row * Tile::kDepth;
                store(reinterpret_cast<float*>(buffers_.weight_panels + to), Words::along_k(weights + i));
                store(reinterpret_cast<float*>(buffers_.dscore_panels + to), Words::along_k(dscores + i));
            }
        }
    }

    /// The first queries of a block, whole strips of them.
    struct Queries {
        int64_t first, count;
    };

    /// sums[key] += the sum over the queries of panels[key, query] * token_panels[query].
    void add_to_keys(const Element* panels, const Element* token_panels, const Queries& queries,
                     int64_t first_key, float* sums) {
        const int64_t num_keys = keys_of_block(first_key), columns = buffers_.extents.columns,
                      depth = round_up(queries_of_block(queries.first), Tile::kDepth),
                      end = smaller(queries.count, depth), place = shape_.query_offset + queries.first;
        for (int64_t column = 0; column < shape_.head_dim; column += kColumns) {
            for (int64_t row = 0; row < num_keys; row += kRows) {
                // The sum starts at the first strip with a query that sees one of these keys.
                const int64_t begin = larger(0, first_key + row - place) / kColumns * kColumns;
                if (begin >= end) break;
                Tile::multiply(end - begin, panels + row * kBlock + begin * kRows,
                               token_panels + column * depth + begin * kColumns,
                               sums + (first_key + row) * columns + column, columns, /*accumulate=*/true);
            }
        }
    }

    void write_row(const float* from, float scale, TokenRows<T> to, int64_t token) const {
        for_each_vector(shape_.head_dim, [&](int64_t i, auto load, auto store) {
            store(to.data + token * to.stride + i, load(from + i) * set(scale));
        });
    }

    const AttentionBackward<T>& args_;
    const AttentionShape& shape_;
    Buffers<T> buffers_;
    float* dqueries_ = nullptr;  // the sums of dq of the current block of queries, strip after strip
};

}  // namespace

template <class T>
void attention_backward(const AttentionBackward<T>& args) {
    Backward<T> pass(args);
    const typename TileOf<T>::Session session;
    pass.run();
}

template void attention_backward(const AttentionBackward<float>&);
template void attention_backward(const AttentionBackward<BFloat16>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
