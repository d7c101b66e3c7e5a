// The forward pass of attention. The keys and values that are seen are packed once for all heads. For each
// block of queries of a head:
//   1. scores of the queries with a block of keys
//   2. weights exp(score - maximum of the scores so far); a new maximum rescales the sums so far
//   3. sums of weights * values, and of weights
//   4. after the last block of keys: y = the first sum / the second
// A strip of queries begins with the first block of which one of its queries sees a key.
//
// Packing takes longer than the products for a single query: 5 to 15 times as long with AVX-512. A call with
// few queries, as when a text is generated token by token, therefore reads keys and values in place.
#include "kernels/cpu/kernels.h"

#include "kernels/cpu/attention_blocks.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

// Measured with AVX-512: for more queries, packing is faster at some sizes (heads, head_dim, keys).
constexpr int64_t kFewQueries = 2;

// Below all scores, and finite: the difference of two maxima must not be NaN.
constexpr float kLowestScore = -1e38f;

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

  public:
    explicit Forward(const Attention<T>& args) : args_(args), shape_(args.shape), buffers_(args.shape) {}

    void run() {
        const auto [begin, end] = args_.queries;
        const TokenRange visible = shape_.visible_keys(begin, end - begin);
        for (int64_t first = visible.begin; first < visible.end; first += kBlock) pack_keys(first);
        for (int64_t head = 0; head < shape_.num_heads; ++head) {
            for (int64_t first = begin; first < end; first += kBlock) attend(head, first);
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
        const TokenRange visible = shape_.visible_keys(first_query, num_queries);
        for (int64_t first_key = visible.begin; first_key < visible.end; first_key += kBlock) {
            for (int64_t column = 0; column < num_queries; column += kColumns) {
                const TokenRange seen = shape_.visible_keys(first_query + column, kColumns);
                if (seen.has_block(first_key)) add_block(first_query, column, first_key, seen.begin);
            }
        }
        for (int64_t column = 0; column < num_queries; column += kColumns) {
            if (shape_.visible_keys(first_query + column, kColumns).empty()) clear(column);
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
        multiply_strip<Tile>(smaller(num_rows, num_keys), depth,
                             {keys(first_key), packed_a_size<Tile>(1, depth)},
                             buffers_.queries + column * depth, buffers_.scores, /*accumulate=*/false);
        mask_strip<Tile>(buffers_.scores, shape_, first_query + column, first_key, num_keys, num_rows);
        compute_weights(column, num_rows, first_key == first_of_all);
        round_to_panel<Tile>(buffers_.scores, num_rows);
        multiply_strip<Tile>(shape_.head_dim, num_rows, {values(first_key), packed_a_size<Tile>(1, num_keys)},
                             buffers_.scores, buffers_.outputs + column * buffers_.extents.rows,
                             /*accumulate=*/first_key > first_of_all);
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

/// Attention of few queries, which reads keys and values in place.
template <class T>
class FewQueries {
    static constexpr int kVectors = 4;  // of a value that are summed at a time

  public:
    explicit FewQueries(const Attention<T>& args) : args_(args), shape_(args.shape) {
        allocate_in_scratch([this](Arena& arena) {
            query_ = arena.allocate<float>(round_up(shape_.head_dim, kLanes));
            weights_ = arena.allocate<float>(round_up(shape_.num_keys, kLanes));
        });
    }

    void run() {
        for (int64_t head = 0; head < shape_.num_heads; ++head) {
            for (int64_t query = args_.queries.begin; query < args_.queries.end; ++query) attend(head, query);
        }
    }

  private:
    void attend(int64_t head, int64_t query) {
        const int64_t column = head * shape_.head_dim, begin = shape_.first_key(query),
                      num_keys = smaller(shape_.num_keys, shape_.query_offset + query + 1) - begin;
        // 1. scores
        load_query(args_.q.data + query * args_.q.stride + column);
        for (int64_t key = 0; key < num_keys; key += kLanes) {
            store(weights_ + key, scores(begin + key, num_keys - key));
        }
        // 2. weights, not yet divided by their sum
        float maximum = kLowestScore, total = 0;
        if (num_keys > 0) compute_weights(num_keys, maximum, total);
        args_.log_sum_exp[head * shape_.num_queries + query] = maximum + __builtin_logf(total);
        // 3. y, some columns at a time
        const float factor = total == 0 ? 0 : 1 / total;
        for (int64_t i = 0; i < shape_.head_dim; i += kVectors * kLanes) {
            if (args_.wide_y.data != nullptr) {
                write_columns(begin, num_keys, i, factor,
                              args_.wide_y.data + query * args_.wide_y.stride + column);
            } else {
                write_columns(begin, num_keys, i, factor, args_.y.data + query * args_.y.stride + column);
            }
        }
    }

    void load_query(const T* from) {
        for_each_vector(shape_.head_dim, [&](int64_t i, auto load_part, auto) {
            store(query_ + i, load_part(from + i) * set(shape_.scale));
        });
    }

    /// The scores of kLanes keys, with minus infinity for those past `num_keys`.
    Vector scores(int64_t first_key, int64_t num_keys) const {
        Square products;
        for (int i = 0; i < kLanes; ++i) {
            const T* key = args_.k.data + (first_key + smaller(i, num_keys - 1)) * args_.k.stride;
            Vector& sum = products.rows[i];
            sum = set(0.0f);
            for_each_vector(shape_.head_dim, [&](int64_t column, auto load_part, auto) {
                sum = multiply_add(load_part(key + column), load(query_ + column), sum);
            });
        }
        transpose(products);
        Vector sums = products.rows[0];
        for (int i = 1; i < kLanes; ++i) sums = sums + products.rows[i];
        if (num_keys >= kLanes) return sums;
        float padded[kLanes];
        store(padded, sums);
        for (int64_t i = num_keys; i < kLanes; ++i) padded[i] = -__builtin_inff();
        return load(padded);
    }

    /// Turns the scores in weights_ into exp(score - maximum).
    void compute_weights(int64_t num_keys, float& maximum, float& total) {
        Vector largest_scores = set(kLowestScore), sums = set(0.0f);
        for (int64_t key = 0; key < num_keys; key += kLanes) {
            largest_scores = max(load(weights_ + key), largest_scores);
        }
        maximum = largest(largest_scores);
        for (int64_t key = 0; key < num_keys; key += kLanes) {
            const Vector weights = exponential_to_zero<T>(load(weights_ + key) - set(maximum));
            store(weights_ + key, weights);
            sums = sums + weights;
        }
        total = sum(sums);
    }

    /// Writes at most kVectors vectors of y, from column `first` on. `y`: the head's row.
    template <class Y>
    void write_columns(int64_t first_key, int64_t num_keys, int64_t first, float factor, Y* y) const {
        const int64_t num_columns = smaller(kVectors * kLanes, shape_.head_dim - first);
        const T* value = args_.v.data + first_key * args_.v.stride + first;
        Vector sums[kVectors];
        for (Vector& sum : sums) sum = set(0.0f);
        for (int64_t key = 0; key < num_keys; ++key, value += args_.v.stride) {
            const Vector weight = set(weights_[key]);
            if (num_columns == kVectors * kLanes) {
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v) {
                    sums[v] = multiply_add(load(value + v * kLanes), weight, sums[v]);
                }
                continue;
            }
            for_each_vector(num_columns, [&](int64_t i, auto load_part, auto) {
                sums[i / kLanes] = multiply_add(load_part(value + i), weight, sums[i / kLanes]);
            });
        }
        for_each_vector(num_columns, [&](int64_t i, auto, auto store_part) {
            store_part(y + first + i, sums[i / kLanes] * set(factor));
        });
    }

    const Attention<T>& args_;
    const AttentionShape& shape_;
    float* query_;    // [head_dim], scaled
    float* weights_;  // of the keys that the query sees; before that their scores
};

}  // namespace

template <class T>
void attention(const Attention<T>& args) {
    if (args.shape.num_queries <= kFewQueries) return FewQueries<T>(args).run();
    Forward<T> pass(args);
    const typename TileOf<T>::Session session;
    pass.run();
}

template void attention(const Attention<float>&);
template void attention(const Attention<BFloat16>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
