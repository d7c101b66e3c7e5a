// The forward pass of attention. Keys and values are packed once for all heads. For each block of queries of
// a head:
//   1. scores of the queries with a block of keys
//   2. weights exp(score - maximum of the scores so far); a new maximum rescales the sums so far
//   3. sums of weights * values, and of weights
//   4. after the last block of keys: y = the first sum / the second
// A strip of queries begins with the first block of which one of its queries sees a key.
#include "kernels/cpu/kernels.h"

#include "kernels/cpu/attention_blocks.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

template <class T>
struct Buffers {
    using Tile = TileOf<T>;
    using Element = typename Tile::Element;

    explicit Buffers(const AttentionShape& shape) : extents(shape) {
        allocate_in_scratch([this](Arena& arena) { allocate_arrays(arena); });
    }

    void allocate_arrays(Arena& arena) {
        const int64_t blocks = extents.num_blocks;
        keys = arena.allocate<Element>(blocks * Extents<Tile>::kPanelRows * extents.depth);
        values = arena.allocate<Element>(blocks * kBlock * extents.rows);
        queries = arena.allocate<Element>(kBlock * extents.depth);
        scores = arena.allocate<float>(Extents<Tile>::kPanelRows * Tile::kColumns);
        outputs = arena.allocate<float>(kBlock * extents.rows);
        maxima = arena.allocate<float>(kBlock);
        totals = arena.allocate<float>(kBlock);
    }

    Extents<Tile> extents;
    Element* keys;           // per block, panels of A, k = head_dim
    Element* values;         // per block, transposed: panels of A, k = keys
    Element* queries;        // of a block, panels of B, k = head_dim
    float* scores;           // a strip
    float* outputs;          // per strip, transposed: [rows, kColumns], not yet divided by totals
    float *maxima, *totals;  // of each query: the largest score so far, and the sum of exp(score - maximum)
};

template <class T>
class Forward {
    using Tile = TileOf<T>;
    static constexpr int64_t kColumns = Tile::kColumns;
    static constexpr int kVectors = Tile::kColumns / kLanes;
    // Below all scores, and finite: the difference of two maxima must not be NaN.
    static constexpr float kLowestScore = -1e38f;

  public:
    explicit Forward(const Attention<T>& args) : args_(args), shape_(args.shape), buffers_(args.shape) {}

    void run() {
        for (int64_t first = 0; first < shape_.num_keys; first += kBlock) pack_keys(first);
        for (int64_t head = 0; head < shape_.num_heads; ++head) {
            for (int64_t first = 0; first < shape_.num_queries; first += kBlock) attend(head, first);
        }
    }

  private:
    int64_t keys_of_block(int64_t first) const { return smaller(kBlock, shape_.num_keys - first); }
    auto* keys(int64_t first) {
        return buffers_.keys + first / kBlock * Extents<Tile>::kPanelRows * buffers_.extents.depth;
    }
    auto* values(int64_t first) { return buffers_.values + first * buffers_.extents.rows; }

    void pack_keys(int64_t first) {
        const T* k = args_.k.data + first * args_.k.stride;
        const T* v = args_.v.data + first * args_.v.stride;
        const int64_t num_keys = keys_of_block(first), head_dim = shape_.head_dim;
        pack_a<Tile>(Operand<T>{k, args_.k.stride, 1}, num_keys, head_dim, keys(first));
        pack_a<Tile>(Operand<T>{v, 1, args_.v.stride}, head_dim, num_keys, values(first));
    }

    /// Computes y and log_sum_exp for one head and the block of queries that begins at `first_query`.
    void attend(int64_t head, int64_t first_query) {
        const int64_t num_queries = smaller(kBlock, shape_.num_queries - first_query),
                      begin = head * shape_.head_dim;
        const T* q = args_.q.data + first_query * args_.q.stride + begin;
        pack_queries<Tile>(Operand<T>{q, args_.q.stride, 1}, num_queries, shape_, buffers_.queries);
        const VisibleKeys visible = visible_keys(shape_, first_query, num_queries);
        for (int64_t first_key = visible.begin; first_key < visible.end; first_key += kBlock) {
            for (int64_t column = 0; column < num_queries; column += kColumns) {
                const VisibleKeys seen = visible_keys(shape_, first_query + column, kColumns);
                if (seen.has_block(first_key)) add_block(first_query, column, first_key, seen.begin);
            }
        }
        for (int64_t column = 0; column < num_queries; column += kColumns) {
            if (visible_keys(shape_, first_query + column, kColumns).empty()) clear(column);
            finish(first_query + column, column, args_.log_sum_exp + head * shape_.num_queries);
            if (args_.wide_y.data != nullptr) {
                write(first_query + column, column, begin, args_.wide_y);
            } else {
                write(first_query + column, column, begin, args_.y);
            }
        }
    }

    /// The results of a strip of queries that see no key.
    void clear(int64_t column) {
        float* output = buffers_.outputs + column * buffers_.extents.rows;
        for (int64_t i = 0; i < shape_.head_dim * kColumns; ++i) output[i] = 0;
        for (int64_t i = column; i < column + kColumns; ++i) {
            buffers_.maxima[i] = kLowestScore;
            buffers_.totals[i] = 0;
        }
    }

    /// Adds a block of keys to the results of the strip of queries that begins at first_query + column.
    /// `first_of_all`: the first block of keys that was added.
    void add_block(int64_t first_query, int64_t column, int64_t first_key, int64_t first_of_all) {
        const int64_t depth = buffers_.extents.depth, num_keys = keys_of_block(first_key);
        const int64_t num_rows =
            keys_of_strip<Tile>(shape_.query_offset + first_query + column, first_key, num_keys);
        multiply_strip<Tile>(smaller(num_rows, num_keys), depth, keys(first_key),
                             buffers_.queries + column * depth, buffers_.scores);
        mask_strip<Tile>(buffers_.scores, shape_, first_query + column, first_key, num_keys, num_rows);
        compute_weights(column, num_rows, first_key == first_of_all);
        round_to_panel<Tile>(buffers_.scores, num_rows);
        const int64_t panel_size = packed_a_size<Tile>(1, num_keys);
        float* output = buffers_.outputs + column * buffers_.extents.rows;
        for (int64_t row = 0; row < shape_.head_dim; row += Tile::kRows) {
            Tile::multiply(num_rows, values(first_key) + row / Tile::kRows * panel_size,
                           reinterpret_cast<const typename Tile::Element*>(buffers_.scores),
                           output + row * kColumns, kColumns, /*accumulate=*/first_key > first_of_all);
        }
    }

    /// Turns scores into exp(score - maximum). Rescales the sums so far to the new maximum.
    void compute_weights(int64_t column, int64_t num_rows, bool first) {
        const Vector scale = set(scale_of_scores<Tile>(shape_));
        float *maxima = buffers_.maxima + column, *totals = buffers_.totals + column;
        Vector maximum[kVectors], negative_maximum[kVectors], total[kVectors];
        for (int v = 0; v < kVectors; ++v) maximum[v] = set(kLowestScore);
        for (int64_t row = 0; row < num_rows; ++row) {
            for (int v = 0; v < kVectors; ++v) {
                maximum[v] = max(load(buffers_.scores + row * kColumns + v * kLanes), maximum[v]);
            }
        }
        for (int v = 0; v < kVectors; ++v) {
            maximum[v] = maximum[v] * scale;
            total[v] = set(0.0f);
            if (!first) {
                const Vector before = load(maxima + v * kLanes);
                maximum[v] = max(maximum[v], before);
                const Vector factor = exponential_to_zero<T>(before - maximum[v]);
                total[v] = load(totals + v * kLanes) * factor;
                rescale(buffers_.outputs + column * buffers_.extents.rows + v * kLanes, factor);
            }
            store(maxima + v * kLanes, maximum[v]);
            negative_maximum[v] = set(0.0f) - maximum[v];
        }
        for (int64_t row = 0; row < num_rows; ++row) {
            for (int v = 0; v < kVectors; ++v) {
                float* score = buffers_.scores + row * kColumns + v * kLanes;
                const Vector weight =
                    exponential_to_zero<T>(multiply_add(load(score), scale, negative_maximum[v]));
                store(score, weight);
                total[v] = total[v] + weight;
            }
        }
        for (int v = 0; v < kVectors; ++v) store(totals + v * kLanes, total[v]);
    }

    void rescale(float* output, Vector factor) {
        for (int64_t row = 0; row < shape_.head_dim; ++row, output += kColumns) {
            store(output, load(output) * factor);
        }
    }

    int64_t queries_of_strip(int64_t first_query) const {
        return smaller(kColumns, shape_.num_queries - first_query);
    }

    /// Writes log_sum_exp, and replaces the totals with the factors of the outputs.
    void finish(int64_t first_query, int64_t column, float* log_sum_exp) {
        const int64_t num_queries = queries_of_strip(first_query);
        float *maxima = buffers_.maxima + column, *totals = buffers_.totals + column;
        for (int64_t i = 0; i < num_queries; ++i) {
            log_sum_exp[first_query + i] = maxima[i] + __builtin_logf(totals[i]);
        }
        for (int64_t i = 0; i < kColumns; ++i) totals[i] = totals[i] == 0 ? 0 : 1 / totals[i];
    }

    /// Writes the strip's outputs to y, from column `begin` on.
    template <class Y>
    void write(int64_t first_query, int64_t column, int64_t begin, const TokenRows<Y>& y) {
        write_transposed<Y>(buffers_.outputs + column * buffers_.extents.rows, kColumns,
                            buffers_.totals + column, queries_of_strip(first_query), shape_.head_dim,
                            {y.data + first_query * y.stride + begin, y.stride});
    }

    const Attention<T>& args_;
    const AttentionShape& shape_;
    Buffers<T> buffers_;
};

}  // namespace

template <class T>
void attention(const Attention<T>& args) {
    Forward<T> pass(args);
    const typename TileOf<T>::Session session;
    pass.run();
}

template void attention(const Attention<float>&);
template void attention(const Attention<BFloat16>&);
template void attention(const Attention<Half>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
