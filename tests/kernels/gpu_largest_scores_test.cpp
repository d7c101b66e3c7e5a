// The largest scores above a threshold on GPUs against a plain loop in fp64.
#include <algorithm>
#include <limits>
#include <tuple>

#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
    int64_t sequences, queries, keys, heads, key_heads, head_dim;
    int64_t query_offset = 0, window = kNoWindow;
    int64_t document = 0;  // the length of documents; 0: sequences are not divided
    int64_t gap = 0;       // between the rows of tokens
    bool aligned = true;
};
constexpr Case kCases[] = {
    {1, 1, 1, 1, 1, 8},
    {2, 33, 33, 4, 2, 64},
    {1, 300, 300, 3, 1, 16},
    {2, 70, 70, 2, 2, 7},
    {2, 70, 70, 2, 1, 8, 0, 5},
    {2, 70, 70, 2, 1, 8, 0, kNoWindow, 9},
    {1, 70, 70, 4, 2, 8, 0, 12, 9, 8},
    {1, 70, 70, 2, 1, 8, 0, kNoWindow, 0, 3},
    {1, 70, 70, 2, 1, 8, 0, kNoWindow, 0, 0, false},
    {2, 40, 80, 2, 1, 8, 40, 50},             // the last queries
    {2, 40, 30, 2, 1, 8, 40, kNoWindow, 60},  // and earlier keys, which some do not see
    {2, 40, 30, 2, 1, 8, -20},                // the first queries see no key
};

/// The inputs of a case, and its largest scores.
template <class T>
struct Scores {
    Case size;
    Memory<T> q, k;
    Memory<int64_t> positions;
    Memory<float> log_sum_exp;
    std::vector<double> largest = std::vector<double>(size.heads, -kInfinity);  // of heads

    int64_t q_stride() const { return size.heads * size.head_dim + size.gap; }
    int64_t k_stride() const { return size.key_heads * size.head_dim + size.gap; }

    double score(int64_t sequence, int64_t head, int64_t query, int64_t key) const {
        const int64_t row = (sequence * size.queries + query) * q_stride() + head * size.head_dim,
                      column = (sequence * size.keys + key) * k_stride() +
                               head / (size.heads / size.key_heads) * size.head_dim;
        double sum = 0;
        for (int64_t i = 0; i < size.head_dim; ++i) sum += q.at(row + i) * k.at(column + i);
        return sum * kScale;
    }
    bool sees(int64_t sequence, int64_t query, int64_t key) const {
        const int64_t distance = size.query_offset + query - key;
        return distance >= 0 && distance < size.window &&
               (size.document == 0 || distance <= positions[sequence * size.queries + query]);
    }
    void compute() {
        for (int64_t row = 0; row < log_sum_exp.size(); ++row) {
            const int64_t query = row % size.queries, head = row / size.queries % size.heads,
                          sequence = row / size.queries / size.heads;
            double sum = 0;
            for (int64_t key = 0; key < size.keys; ++key) {
                if (!sees(sequence, query, key)) continue;
                const double own = score(sequence, head, query, key);
                largest[head] = std::max(largest[head], own);
                sum += std::exp(own);
            }
            log_sum_exp[row] = static_cast<float>(std::log(sum));
        }
    }
    static constexpr float kScale = 0.75;
};

template <class T>
class GpuLargestScores : public GpuTest {
  protected:
    Scores<T> scores(const Case& size) {
        Scores<T> made{
            size,
            this->template random<T>(size.sequences * size.queries * (size.heads * size.head_dim + size.gap),
                                     size.aligned),
            this->template random<T>(size.sequences * size.keys * (size.key_heads * size.head_dim + size.gap),
                                     size.aligned),
            Memory<int64_t>(size.sequences * size.queries, true),
            Memory<float>(size.sequences * size.heads * size.queries, true)};
        for (int64_t i = 0; i < made.positions.size(); ++i) {
            const int64_t place = size.query_offset + i % size.queries;
            made.positions[i] = size.document == 0 ? place : place % size.document;
        }
        hide_large_keys(made);
        made.compute();
        return made;
    }

    /// The first key of a sequence is large, but only queries that do not see it have a score other than 0.
    static void hide_large_keys(Scores<T>& scores) {
        const Case& size = scores.size;
        if (size.window == kNoWindow && size.document == 0) return;
        const auto scale = [](Memory<T>& x, int64_t begin, int64_t count, double factor) {
            for (int64_t i = begin; i < begin + count; ++i) x[i] = narrow<T>(factor * x.at(i));
        };
        for (int64_t sequence = 0; sequence < size.sequences; ++sequence) {
            scale(scores.k, sequence * size.keys * scores.k_stride(), size.key_heads * size.head_dim, 50);
            for (int64_t query = 0; query < size.queries; ++query) {
                if (!scores.sees(sequence, query, 0)) continue;
                scale(scores.q, (sequence * size.queries + query) * scores.q_stride(),
                      size.heads * size.head_dim, 0);
            }
        }
    }

    static auto found(const Scores<T>& scores, float threshold, float before = -kInfinity) {
        const Case& size = scores.size;
        Memory<float> largest(std::vector<float>(size.heads, before));
        gpu<T>().largest_scores(
            {.num_sequences = size.sequences,
             .num_key_heads = size.key_heads,
             .shape = {.num_queries = size.queries,
                       .num_keys = size.keys,
                       .head_dim = size.head_dim,
                       .num_heads = size.heads / size.key_heads,
                       .scale = scores.kScale,
                       .query_offset = size.query_offset,
                       .window = size.window,
                       .positions = size.document == 0 ? nullptr : scores.positions.gpu()},
             .q = {scores.q.gpu(), scores.q_stride()},
             .k = {scores.k.gpu(), scores.k_stride()},
             .log_sum_exp = scores.log_sum_exp.gpu(),
             .threshold = threshold,
             .largest = largest.gpu()},
            nullptr);
        return std::tuple(largest);
    }
};
using ElementTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(GpuLargestScores, ElementTypes);

TYPED_TEST(GpuLargestScores, MatchPlainLoops) {
    for (const Case& size : kCases) {
        SCOPED_TRACE(::testing::PrintToString(std::vector{size.queries, size.keys, size.head_dim, size.window,
                                                          size.query_offset, size.document}));
        const auto scores = this->scores(size);
        const double most = *std::ranges::max_element(scores.largest);
        for (const double threshold : {0.0, 0.8 * most, 0.9999 * most, 1.0001 * most}) {
            const auto limit = static_cast<float>(std::max(threshold, 0.0));
            const auto [largest] = in_any_order([&] { return this->found(scores, limit); });
            EXPECT_EQ(largest.faults(), 0);
            for (int64_t head = 0; head < size.heads; ++head) {
                const double right = scores.largest[head];
                if (right > limit) {
                    EXPECT_NEAR(largest.at(head) / right, 1, 2e-6) << head << " above " << limit;
                } else {
                    EXPECT_EQ(largest.at(head), -kInfinity) << head << " above " << limit;
                }
            }
        }
    }
}

TYPED_TEST(GpuLargestScores, OnlyRise) {
    const auto scores = this->scores({1, 40, 40, 2, 1, 8});
    for (const float before : {-1.0F, 0.5F, 1000.0F}) {
        const auto [largest] = this->found(scores, 0, before);
        for (int64_t head = 0; head < 2; ++head) {
            const double right = std::max<double>(before, scores.largest[head]);
            EXPECT_NEAR(largest.at(head) / right, 1, 2e-6);
        }
    }
}

// The others of its warp do.
TYPED_TEST(GpuLargestScores, AQueryWithNanDoesNotCount) {
    auto scores = this->scores({1, 40, 40, 1, 1, 8});
    scores.log_sum_exp[39] = std::numeric_limits<float>::quiet_NaN();
    scores.largest[0] = -kInfinity;
    for (int64_t query = 0; query < 39; ++query) {
        for (int64_t key = 0; key <= query; ++key)
            scores.largest[0] = std::max(scores.largest[0], scores.score(0, 0, query, key));
    }
    const auto [found] = this->found(scores, 0);
    EXPECT_NEAR(found.at(0) / scores.largest[0], 1, 2e-6);
}

TYPED_TEST(GpuLargestScores, NoQueriesAreAllowed) {
    this->template gpu<TypeParam>().largest_scores({.num_sequences = 0, .num_key_heads = 1}, nullptr);
    this->template gpu<TypeParam>().largest_scores({.num_sequences = 1, .num_key_heads = 1}, nullptr);
}

}  // namespace
}  // namespace argosy::kernels
