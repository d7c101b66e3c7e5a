// Attention by cuDNN: what gpu/cudnn.h describes for it, computed by the stand-in, equals FlashAttention's
// stand-in, which reads VisibleKeys itself.
#include "gpu/cudnn.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gpu/graph.h"
#include "support/fake_cudnn.h"
#include "support/tensors.h"

namespace argosy::gpu {
namespace {

using testing::close;

constexpr double kTolerance = 1.0 / 128;  // of bf16

at::Tensor offsets(const std::vector<int32_t>& values) {
    return values.empty() ? at::Tensor() : at::tensor(values, at::kInt);
}

struct Case {
    const char* name;
    int64_t sequences, queries, keys;
    bool causal = true;
    std::optional<int64_t> window = {};
    std::vector<int32_t> query_offsets = {}, key_offsets = {};
    int64_t heads = 4, kv_heads = 2, head_dim = 16;

    VisibleKeys visible() const { return {causal, window, offsets(query_offsets), offsets(key_offsets)}; }
};

const Case kCases[] = {
    {"window", 2, 9, 9, true, 3},
    {"fewer queries than keys", 2, 5, 9},
    {"fewer queries in a window", 1, 5, 9, true, 3},
    {"queries before the first key", 2, 7, 4},
    {"all keys", 2, 5, 7, false},
    {"documents", 2, 8, 8, true, {}, {0, 3, 8, 8, 12, 16}, {0, 3, 8, 8, 12, 16}},
    {"documents in a window", 2, 8, 8, true, 2, {0, 3, 8, 8, 12, 16}, {0, 3, 8, 8, 12, 16}},
    {"keys before a part's queries", 2, 4, 8, true, {}, {0, 0, 3, 4, 4, 8}, {0, 2, 7, 8, 11, 16}},
    {"no key, or no query", 1, 8, 8, false, {}, {0, 0, 5, 8}, {0, 3, 8, 8}},
    {"one head", 1, 8, 8, true, {}, {0, 2, 8}, {0, 2, 8}, 1, 1, 128},
    {"a key head for each head", 1, 8, 8, true, {}, {0, 2, 8}, {0, 2, 8}, 3, 3, 32},
};

/// Columns of one tensor, as a product makes them: [sequences, tokens, heads, head_dim].
struct Inputs {
    at::Tensor q, k, v, dy;
};
Inputs inputs(const Case& one) {
    testing::RandomTensors random(7);
    const auto made = [&](int64_t tokens, int64_t heads, int64_t other_heads) {
        return random.normal({one.sequences, tokens, heads + other_heads, one.head_dim}, at::kBFloat16)
            .narrow(2, other_heads, heads);
    };
    return {made(one.queries, one.heads, 3), made(one.keys, one.kv_heads, 0), made(one.keys, one.kv_heads, 2),
            made(one.queries, one.heads, 0)};
}

struct Results {
    Attention forward;
    AttentionGradient gradient;
};
Results computed(const Case& one, const Inputs& given, bool by_cudnn) {
    prefer_cudnn(by_cudnn);
    const Attention forward = masked_attention(given.q, given.k, given.v, one.visible());
    const AttentionGradient gradient =
        masked_attention_backward(given.dy, given.q, given.k, given.v, forward, one.visible());
    prefer_cudnn(false);
    return {forward, gradient};
}

void expect_alike(const Results& actual, const Results& expected) {
    EXPECT_TRUE(close(actual.forward.y, expected.forward.y, kTolerance));
    EXPECT_TRUE(close(actual.gradient.dq, expected.gradient.dq, kTolerance));
    EXPECT_TRUE(close(actual.gradient.dk, expected.gradient.dk, kTolerance));
    EXPECT_TRUE(close(actual.gradient.dv, expected.gradient.dv, kTolerance));
    const at::Tensor sums = actual.forward.log_sum_exp, expected_sums = expected.forward.log_sum_exp;
    ASSERT_EQ(sums.sizes(), expected_sums.sizes());
    EXPECT_TRUE(sums.isinf().equal(expected_sums.isinf()));
    EXPECT_FALSE(sums.isneginf().any().item<bool>());
    const auto finite = [](const at::Tensor& x) { return x.masked_fill(x.isinf(), 0); };
    EXPECT_TRUE(close(finite(sums), finite(expected_sums), 1e-5));
}

TEST(Cudnn, ComputesWhatFlashAttentionDoes) {
    for (const Case& one : kCases) {
        SCOPED_TRACE(one.name);
        const Inputs given = inputs(one);
        const Results expected = computed(one, given, false);
        const int before = testing::num_cudnn_calls();
        const Results actual = computed(one, given, true);
        EXPECT_EQ(testing::num_cudnn_calls() - before, 2);
        expect_alike(actual, expected);
    }
}

TEST(Cudnn, TakesTheForwardPassOfFlashAttention) {
    const Case& one = kCases[7];
    const Inputs given = inputs(one);
    Results results = computed(one, given, false);
    prefer_cudnn(true);
    const auto gradient =
        masked_attention_backward(given.dy, given.q, given.k, given.v, results.forward, one.visible());
    prefer_cudnn(false);
    expect_alike({results.forward, gradient}, results);
}

TEST(Cudnn, QueriesAndKeysWithoutAnotherHaveExactlyNothing) {
    const Case& one = kCases[8];  // queries 5 to 7 see no key, keys 0 to 2 no query
    const Results actual = computed(one, inputs(one), true);
    for (const at::Tensor& x : {actual.forward.y.narrow(1, 5, 3), actual.gradient.dq.narrow(1, 5, 3),
                                actual.gradient.dk.narrow(1, 0, 3), actual.gradient.dv.narrow(1, 0, 3)})
        EXPECT_FALSE(x.any().item<bool>());
    EXPECT_TRUE(actual.forward.log_sum_exp.narrow(1, 5, 3).isposinf().all().item<bool>());
    EXPECT_TRUE(actual.forward.log_sum_exp.narrow(1, 0, 5).isfinite().all().item<bool>());
}

TEST(Cudnn, IsAskedOnlyForWhatItCan) {
    const auto calls = [](const Case& one, at::ScalarType type) {
        Inputs given = inputs(one);
        for (at::Tensor* x : {&given.q, &given.k, &given.v, &given.dy}) *x = x->to(type);
        const int before = testing::num_cudnn_calls();
        expect_alike(computed(one, given, true), computed(one, given, false));
        return testing::num_cudnn_calls() - before;
    };
    EXPECT_EQ(calls(kCases[0], at::kFloat), 0);
    EXPECT_EQ(
        calls({.name = "head_dim", .sequences = 1, .queries = 4, .keys = 4, .head_dim = 24}, at::kBFloat16),
        0);
    EXPECT_EQ(
        calls({.name = "large", .sequences = 1, .queries = 4, .keys = 4, .head_dim = 144}, at::kBFloat16), 0);
    EXPECT_EQ(calls({"one key", 2, 1, 1}, at::kBFloat16), 0);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    EXPECT_EQ(calls(kCases[0], at::kBFloat16), 1) << "the stand-in has no deterministic backward pass";
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST(Cudnn, AGraphReadsTheSegmentsOfEachReplay) {
    const Case &first = kCases[5],
               second = {"", 2, 8, 8, true, {}, {0, 1, 2, 8, 15, 16}, {0, 1, 2, 8, 15, 16}};
    const Inputs given = inputs(first);
    const VisibleKeys visible = first.visible();
    Results actual;
    prefer_cudnn(true);
    Graph graph([&] {
        actual.forward = masked_attention(given.q, given.k, given.v, visible);
        actual.gradient =
            masked_attention_backward(given.dy, given.q, given.k, given.v, actual.forward, visible);
    });
    for (const Case* one : {&first, &second}) {
        at::Tensor query_offsets = visible.query_offsets, key_offsets = visible.key_offsets;
        query_offsets.copy_(offsets(one->query_offsets));
        key_offsets.copy_(offsets(one->key_offsets));
        prefer_cudnn(true);
        graph.replay();  // the stand-in refuses work that reads a number on the host
        expect_alike(actual, computed(*one, given, false));
    }
}

}  // namespace
}  // namespace argosy::gpu
