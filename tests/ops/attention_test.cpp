#include "ops/attention.h"

#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>

#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

struct Case {
    int64_t sequences, seq_len, heads, kv_heads, head_dim;
};
constexpr Case kCases[] = {
    {1, 1, 1, 1, 2},   {2, 5, 2, 2, 8},    {3, 7, 4, 2, 2},  {2, 13, 5, 1, 8},
    {1, 33, 3, 3, 17}, {1, 67, 10, 2, 64}, {2, 1, 2, 1, 64},
};

/// Softmax attention with the whole matrix of scores and an explicit mask.
at::Tensor plain_attention(const std::vector<at::Tensor>& in, const Case& c) {
    const auto heads_first = [&](const at::Tensor& x, int64_t heads) {
        return x.view({c.sequences, c.seq_len, heads, c.head_dim}).transpose(1, 2);
    };
    const int64_t sharing = c.heads / c.kv_heads;
    const at::Tensor q = heads_first(in[0], c.heads);
    const at::Tensor k = heads_first(in[1], c.kv_heads).repeat_interleave(sharing, 1);
    const at::Tensor v = heads_first(in[2], c.kv_heads).repeat_interleave(sharing, 1);
    const at::Tensor later = at::ones({c.seq_len, c.seq_len}, at::kBool).triu(1);
    const at::Tensor scores = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(c.head_dim));
    const at::Tensor weights =
        scores.masked_fill(later, -std::numeric_limits<double>::infinity()).softmax(-1);
    return weights.matmul(v).transpose(1, 2).reshape({c.sequences * c.seq_len, c.heads * c.head_dim});
}

class AttentionTest : public OpsTest {
  protected:
    void check(const Case& c) {
        const int64_t tokens = c.sequences * c.seq_len;
        const at::Tensor q = normal({tokens, c.heads * c.head_dim}), dy = normal(q.sizes());
        const at::Tensor k = normal({tokens, c.kv_heads * c.head_dim}), v = normal(k.sizes());
        const AttentionShape shape{c.sequences, c.seq_len, c.head_dim};
        const Differentiated oracle =
            differentiate([&](const auto& in) { return plain_attention(in, c); }, {q, k, v}, dy);

        const AttentionOutput output = attention(q, k, v, shape);
        EXPECT_TRUE(right(output.y, oracle.value)) << describe(c);
        const auto [dq, dk, dv] = attention_backward(dy, q, k, v, output, shape);
        // A sequence of one token attends to itself alone: exactly 0, where bf16 leaves a rounding of dy v.
        if (c.seq_len > 1) {
            EXPECT_TRUE(right(dq, oracle.gradients[0])) << describe(c);
            EXPECT_TRUE(right(dk, oracle.gradients[1])) << describe(c);
        }
        EXPECT_TRUE(right(dv, oracle.gradients[2])) << describe(c);
    }

    static std::string describe(const Case& c) {
        return ::testing::PrintToString(std::vector{c.sequences, c.seq_len, c.heads, c.kv_heads, c.head_dim});
    }
};

TEST_P(AttentionTest, MatchesPlainSoftmax) {
    for (const Case& c : kCases) check(c);
}

// Scores in the thousands: each query attends to one key alone, and nothing is left to move.
TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
    const Case c{1, 9, 2, 1, 8};
    const AttentionShape shape{c.sequences, c.seq_len, c.head_dim};
    const at::Tensor q = normal({9, 16}, 30), k = normal({9, 8}, 30), v = normal({9, 8}),
                     dy = normal({9, 16});
    const Differentiated oracle =
        differentiate([&](const auto& in) { return plain_attention(in, c); }, {q, k, v}, dy);
    const AttentionOutput output = attention(q, k, v, shape);
    EXPECT_TRUE(right(output.y, oracle.value));
    const auto [dq, dk, dv] = attention_backward(dy, q, k, v, output, shape);
    EXPECT_TRUE(right(dv, oracle.gradients[2]));
    const double limit = 30 * GetParam().tolerance * c.head_dim;  // the rounding of dy v, times k or q
    for (const at::Tensor& moved : {dq, dk}) EXPECT_LT(moved.abs().max().item<double>(), limit);
}

TEST_P(AttentionTest, LaterTokensAndOtherSequencesDoNotMatter) {
    const AttentionShape shape{2, 6, 4};
    const at::Tensor q = normal({12, 8}), k = normal({12, 4}), v = normal({12, 4});
    at::Tensor other_k = k.clone(), other_v = v.clone();
    for (at::Tensor* changed : {&other_k, &other_v}) changed->narrow(0, 4, 5).fill_(7);  // tokens 4 .. 8
    const at::Tensor y = attention(q, k, v, shape).y, other_y = attention(q, other_k, other_v, shape).y;
    EXPECT_TRUE(identical(other_y.narrow(0, 0, 4), y.narrow(0, 0, 4)));
    EXPECT_FALSE(identical(other_y.narrow(0, 4, 2), y.narrow(0, 4, 2)));
    EXPECT_FALSE(identical(other_y.narrow(0, 9, 3), y.narrow(0, 9, 3))) << "the second sequence sees 6 .. 8";
}

ARGOSY_FOR_EACH_VARIANT(AttentionTest);

}  // namespace
}  // namespace argosy::ops
