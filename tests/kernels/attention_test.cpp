// Attention with the tiles of this compilation, forward and backward, against loops in fp64.
#include "kernels/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
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

    /// The largest difference, relative to the largest exact element.
    double error() {
        double difference = 0, largest = 0;
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
    Problem(int64_t seq_len, int64_t head_dim, int64_t num_heads)
        : shape{seq_len, head_dim, num_heads,
                static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))},
          q(seq_len, num_heads * head_dim),
          k(seq_len, head_dim),
          v(k),
          y(q),
          dy(q),
          dq(q),
          dk(k),
          dv(k),
          log_sum_exp(num_heads * seq_len),
          exact_log_sum_exp(num_heads * seq_len) {
        std::mt19937 engine(1);
        for (Rows<T>* rows : {&q, &k, &v, &dy}) rows->fill(engine);
        for (int64_t head = 0; head < num_heads; ++head) {
            for (int64_t query = 0; query < seq_len; ++query) solve(head, query);
        }
    }

    void run() {
        attention<T>({shape, q, k, v, y, log_sum_exp.data()});
        attention_backward<T>({shape, dy, q, k, v, y, log_sum_exp.data(), dq, dk, dv});
    }

    AttentionShape shape;
    Rows<T> q, k, v, y, dy, dq, dk, dv;
    std::vector<float> log_sum_exp;
    std::vector<double> exact_log_sum_exp;

  private:
    void solve(int64_t head, int64_t query) {
        const int64_t begin = head * shape.head_dim;
        std::vector<double> weights(query + 1), dweights(query + 1);
        double total = 0, mean = 0;
        for (int64_t key = 0; key <= query; ++key) {
            double score = 0;
            for (int64_t d = 0; d < shape.head_dim; ++d) {
                score += q(query, begin + d) * k(key, d) * shape.scale;
                dweights[key] += dy(query, begin + d) * v(key, d);
            }
            total += weights[key] = std::exp(score);
        }
        exact_log_sum_exp[head * shape.seq_len + query] = std::log(total);
        for (int64_t key = 0; key <= query; ++key) mean += (weights[key] /= total) * dweights[key];
        for (int64_t key = 0; key <= query; ++key) {
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
void check(double tolerance) {
    constexpr int64_t kShapes[][3] = {{7, 2, 2},   {13, 8, 5},   {33, 17, 2},  {95, 64, 1}, {96, 96, 2},
                                      {97, 64, 3}, {131, 80, 1}, {200, 32, 2}, {65, 256, 1}};
    for (const auto& [seq_len, head_dim, num_heads] : kShapes) {
        Problem<T> problem(seq_len, head_dim, num_heads);
        problem.run();
        for (Rows<T>* rows : {&problem.y, &problem.dq, &problem.dk, &problem.dv}) {
            EXPECT_LE(rows->error(), tolerance) << seq_len << " " << head_dim << " " << num_heads;
        }
        for (size_t i = 0; i < problem.log_sum_exp.size(); ++i) {
            EXPECT_NEAR(problem.log_sum_exp[i], problem.exact_log_sum_exp[i], tolerance);
        }
    }
}

TEST(AttentionTest, OfPairsOfBf16) { check<BFloat16>(1.0 / 128); }
TEST(AttentionTest, OfFp16) { check<Half>(1.0 / 512); }
TEST(AttentionTest, OfFp32) { check<float>(1e-5); }

}  // namespace
}  // namespace argosy::kernels::ARGOSY_VARIANT
