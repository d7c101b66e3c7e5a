// Attention with the tiles of this compilation, forward and backward, against loops in fp64.
#include "kernels/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

/// Rows of elements, and their values in fp64.
template <class T>
struct Rows {
    Rows(int64_t rows, int64_t columns)
        : num_rows(rows), row_size(columns), elements(rows * stride()), exact(rows * columns) {}
    int64_t stride() const { return row_size + 3; }
    double& operator()(int64_t row, int64_t column) { return exact[row * row_size + column]; }
    operator TokenRows<T>() { return {elements.data(), stride()}; }
    operator TokenRows<const T>() const { return {elements.data(), stride()}; }

    void fill(std::mt19937& engine) {
        std::normal_distribution<float> distribution;
        for (int64_t row = 0; row < num_rows; ++row) {
            for (int64_t column = 0; column < row_size; ++column) {
                T* element = &elements[row * stride() + column];
                store_first(element, set(distribution(engine)), 1);
                (*this)(row, column) = sum(load_first(element, 1));
            }
        }
    }

    /// The largest difference, relative to the largest exact element. That of a query with a single key is 0
    /// in dq, where rounding errors of the sum remain; so the error is relative to at least 1.
    double error() {
        double difference = 0, largest = 1;
        for (int64_t row = 0; row < num_rows; ++row) {
            for (int64_t column = 0; column < row_size; ++column) {
                const double actual = sum(load_first(&elements[row * stride() + column], 1));
                const double wanted = (*this)(row, column);
                if (std::isnan(actual)) return actual;
                difference = std::max(difference, std::abs(actual - wanted));
                largest = std::max(largest, std::abs(wanted));
            }
        }
        return difference / largest;
    }

    int64_t num_rows, row_size;
    std::vector<T> elements;
    std::vector<double> exact;
};

template <class T>
struct Problem {
    explicit Problem(const AttentionShape& of)
        : shape(of),
          q(of.num_queries, of.num_heads * of.head_dim),
          k(of.num_keys, of.head_dim),
          v(k),
          y(q),
          dy(q),
          dq(q),
          dk(k),
          dv(k),
          log_sum_exp(of.num_heads * of.num_queries),
          exact_log_sum_exp(of.num_heads * of.num_queries) {
        shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(of.head_dim)));
        std::mt19937 engine(1);
        for (Rows<T>* rows : {&q, &k, &v, &dy}) rows->fill(engine);
        for (int64_t head = 0; head < of.num_heads; ++head) {
            for (int64_t query = 0; query < of.num_queries; ++query) solve(head, query);
        }
    }

    void run() {
        const TokenRange queries{0, shape.num_queries}, keys{0, shape.num_keys};
        attention<T>({shape, queries, q, k, v, y, log_sum_exp.data()});
        attention_backward<T>(gradient_of(keys));
    }

    /// The same in parts of one block. Each part of the backward pass is on a thread of its own; the first
    /// thread's part has the first keys and waits for all others.
    void run_in_parts() {
        for (const TokenRange& queries : parts(shape.num_queries)) {
            attention<T>({shape, queries, q, k, v, y, log_sum_exp.data()});
        }
        Sums sums(shape);
        std::vector<std::jthread> threads;
        for (const TokenRange& keys : parts(shape.num_keys)) {
            threads.emplace_back([this, keys, &sums] {
                attention_backward<T>(gradient_of(keys, {sums.dq.data(), sums.keys_added.data()}));
            });
        }
    }

    /// The bytes of all results. They are NaN before a pass writes them.
    std::string results() {
        std::string bytes(reinterpret_cast<const char*>(log_sum_exp.data()),
                          sizeof(float) * log_sum_exp.size());
        for (const Rows<T>* rows : {&y, &dq, &dk, &dv})
            bytes.append(reinterpret_cast<const char*>(rows->elements.data()),
                         sizeof(T) * rows->elements.size());
        return bytes;
    }
    void forget_results() {
        for (Rows<T>* rows : {&y, &dq, &dk, &dv})
            std::memset(rows->elements.data(), 0xFF, sizeof(T) * rows->elements.size());
        log_sum_exp.assign(log_sum_exp.size(), std::nanf(""));
    }

    AttentionShape shape;
    Rows<T> q, k, v, y, dy, dq, dk, dv;
    std::vector<float> log_sum_exp;
    std::vector<double> exact_log_sum_exp;

  private:
    static std::vector<TokenRange> parts(int64_t num_tokens) {
        std::vector<TokenRange> made;
        for (int64_t begin = 0; begin < num_tokens; begin += kAttentionBlock)
            made.push_back({begin, std::min(begin + kAttentionBlock, num_tokens)});
        return made;
    }

    /// What parts share; the sums are NaN before the first part.
    struct Sums {
        explicit Sums(const AttentionShape& of)
            : dq(of.num_heads * of.num_query_blocks() * of.size_of_sums(), std::nanf("")),
              keys_added(of.num_heads * of.num_query_blocks()) {}
        std::vector<float> dq;
        std::vector<int64_t> keys_added;
    };

    AttentionBackward<T> gradient_of(const TokenRange& keys, const SharedSums& sums = {}) {
        return {shape, keys, dy, q, k, v, y, log_sum_exp.data(), dq, dk, dv, sums};
    }

    void solve(int64_t head, int64_t query) {
        const int64_t begin = head * shape.head_dim, place = shape.query_offset + query;
        std::vector<double> weights(shape.num_keys), dweights(shape.num_keys);
        std::vector<int64_t> keys;
        for (int64_t key = 0; key < shape.num_keys; ++key) {
            const bool is_of_document = !shape.positions || place - key <= shape.positions[query];
            if (key <= place && place - key < shape.window && is_of_document) keys.push_back(key);
        }
        double total = 0, mean = 0;
        for (const int64_t key : keys) {
            double score = 0;
            for (int64_t d = 0; d < shape.head_dim; ++d) {
                score += q(query, begin + d) * k(key, d) * shape.scale;
                dweights[key] += dy(query, begin + d) * v(key, d);
            }
            total += weights[key] = std::exp(score);
        }
        exact_log_sum_exp[head * shape.num_queries + query] = std::log(total);
        for (const int64_t key : keys) mean += (weights[key] /= total) * dweights[key];
        for (const int64_t key : keys) {
            const double dscore = weights[key] * (dweights[key] - mean) * shape.scale;
            for (int64_t d = 0; d < shape.head_dim; ++d) {
                y(query, begin + d) += weights[key] * v(key, d);
                dv(key, d) += weights[key] * dy(query, begin + d);
                dq(query, begin + d) += dscore * k(key, d);
                dk(key, d) += dscore * q(query, begin + d);
            }
        }
    }
};

template <class T>
void check(const AttentionShape& shape, double tolerance) {
    SCOPED_TRACE(::testing::PrintToString(std::vector{shape.num_queries, shape.num_keys, shape.head_dim,
                                                      shape.num_heads, shape.query_offset, shape.window}));
    Problem<T> problem(shape);
    problem.forget_results();
    problem.run();
    const std::string whole = problem.results();
    problem.forget_results();
    problem.run_in_parts();
    EXPECT_TRUE(problem.results() == whole);
    for (Rows<T>* rows : {&problem.y, &problem.dq, &problem.dk, &problem.dv})
        EXPECT_LE(rows->error(), tolerance);
    for (size_t i = 0; i < problem.log_sum_exp.size(); ++i) {
        if (std::isinf(problem.exact_log_sum_exp[i])) {
            EXPECT_EQ(problem.log_sum_exp[i], problem.exact_log_sum_exp[i]);
        } else {
            EXPECT_NEAR(problem.log_sum_exp[i], problem.exact_log_sum_exp[i], tolerance);
        }
    }
}

/// The positions of tokens first .. first+count-1 of a sequence of documents; the last document has no end.
std::vector<int64_t> positions_in(const std::vector<int64_t>& lengths, int64_t first, int64_t count) {
    std::vector<int64_t> positions;
    size_t document = 0;
    for (int64_t token = 0, position = 0; token < first + count; ++token, ++position) {
        while (document < lengths.size() && position == lengths[document]) position = 0, ++document;
        if (token >= first) positions.push_back(position);
    }
    return positions;
}

template <class T>
void check(double tolerance) {
    constexpr int64_t kShapes[][3] = {{7, 2, 2},    {13, 8, 5},  {33, 17, 2},  {95, 64, 1},
                                      {96, 96, 2},  {97, 64, 3}, {131, 80, 1}, {200, 32, 2},
                                      {65, 256, 1}, {1, 64, 2},  {2, 5, 3}};
    for (const auto& [seq_len, head_dim, num_heads] : kShapes) {
        check<T>({seq_len, seq_len, head_dim, num_heads}, tolerance);
        check<T>({1, seq_len, head_dim, num_heads, 0, seq_len - 1}, tolerance);  // the last token alone
    }
}

/// Documents, windows, and queries that are only a part of the sequence, with its keys or other ones.
template <class T>
void check_masks(double tolerance) {
    const std::vector<int64_t> kDocuments[] = {{1, 1, 2, 3}, {96, 96}, {97, 1, 30}, {5, 190, 7}, {250}};
    struct Part {
        int64_t num_queries, num_keys, query_offset;
    };
    // queries of the whole sequence, of its middle, of its end; keys before, around and after them; and few
    // queries, which have a kernel of their own
    constexpr Part kParts[] = {{300, 300, 0}, {100, 300, 60}, {37, 231, 194}, {96, 96, 96},  {50, 200, 300},
                               {110, 70, 15}, {3, 40, 0},     {20, 30, -11},  {10, 10, -10}, {1, 231, 230},
                               {2, 98, 96},   {1, 100, 150},  {2, 30, -1},    {1, 9, -3}};
    for (const auto& [num_queries, num_keys, offset] : kParts) {
        for (const int64_t window : {kNoWindow, int64_t{1}, int64_t{17}, int64_t{100}}) {
            check<T>({num_queries, num_keys, 16, 2, 0, offset, window}, tolerance);
            if (offset < 0) continue;
            for (const auto& lengths : kDocuments) {
                const std::vector<int64_t> positions = positions_in(lengths, offset, num_queries);
                check<T>({num_queries, num_keys, 16, 2, 0, offset, window, positions.data()}, tolerance);
            }
        }
    }
}

TEST(AttentionTest, OfPairsOfBf16) { check<BFloat16>(1.0 / 128); }
TEST(AttentionTest, OfFp32) { check<float>(1e-5); }
TEST(AttentionTest, MasksOfPairsOfBf16) { check_masks<BFloat16>(1.0 / 128); }
TEST(AttentionTest, MasksOfFp32) { check_masks<float>(1e-5); }

}  // namespace
}  // namespace argosy::kernels::ARGOSY_VARIANT
