// How threads share the work of attention.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <new>

#include "ops/cpu_attention.h"

static std::atomic<int> num_refusals = 0;  // of scratch memory, still to come

/// Replaces the C library's, with which kernels get their scratch memory.
extern "C" void* aligned_alloc(size_t alignment, size_t size) noexcept {
    void* memory = nullptr;
    if (num_refusals > 0 && num_refusals-- > 0) return nullptr;
    if (posix_memalign(&memory, alignment, size) != 0) return nullptr;
    return memory;
}

namespace argosy::ops {
namespace {

kernels::AttentionShape whole_sequence(int64_t num_tokens, int64_t window = kNoWindow) {
    return {.num_queries = num_tokens,
            .num_keys = num_tokens,
            .head_dim = 64,
            .num_heads = 4,
            .scale = 1,
            .window = window};
}

/// Whether the parts of each group are all `num_tokens` tokens, each once. Those of a later thread have later
/// tokens, and those of a thread are of groups in ascending order.
bool cover(const AttentionParts& threads, int64_t num_groups, int64_t num_tokens) {
    std::map<int64_t, int64_t> next;
    for (const auto& parts : threads) {
        for (const AttentionPart& part : parts) {
            if (part.group < parts[0].group) return false;
            if (part.range.begin != next[part.group] || part.range.empty()) return false;
            next[part.group] = part.range.end;
        }
    }
    return std::ssize(next) == num_groups &&
           std::ranges::all_of(next, [&](const auto& each) { return each.second == num_tokens; });
}

/// The same threads, in the opposite order.
AttentionParts reversed(AttentionParts threads) {
    std::ranges::reverse(threads);
    return threads;
}

/// The most scores of a thread, relative to their mean. `scores_until(token)`: those of the tokens before.
template <class Scores>
double imbalance(const AttentionParts& threads, const Scores& scores_until) {
    double sum = 0, most = 0;
    for (const auto& parts : threads) {
        double scores = 0;
        for (const auto& [group, range] : parts)
            scores += scores_until(range.end) - scores_until(range.begin);
        sum += scores;
        most = std::max(most, scores);
    }
    return most * static_cast<double>(threads.size()) / sum;
}

TEST(AttentionParts, AreAllBlocksOnce) {
    for (const int64_t tokens : {1, 96, 97, 1000}) {
        for (const int threads : {1, 2, 7, 64}) {
            for (const int64_t window : {kNoWindow, int64_t{100}}) {
                const std::vector shapes(3, whole_sequence(tokens, window));
                EXPECT_TRUE(cover(divide_attention(shapes, 2, threads), 6, tokens)) << threads;
                // The parts with later keys, for which others wait, are those of earlier threads.
                EXPECT_TRUE(cover(reversed(divide_attention_backward(shapes, 2, threads)), 6, tokens))
                    << threads;
            }
        }
    }
}

TEST(AttentionParts, GiveThreadsEqualWork) {
    constexpr double kTokens = 8192;
    const std::vector shapes{whole_sequence(8192)};
    for (const int threads : {8, 32, 64}) {
        const AttentionParts parts = divide_attention(shapes, 8, threads),
                             backward = divide_attention_backward(shapes, 8, threads);
        EXPECT_EQ(std::ssize(parts), threads);
        EXPECT_EQ(std::ssize(backward), threads);
        const double limit = threads == 64 ? 1.15 : 1.1;
        EXPECT_LT(imbalance(parts, [](double token) { return token * token; }), limit) << threads;
        EXPECT_LT(imbalance(backward, [](double token) { return token * (2 * kTokens - token); }), limit)
            << threads;
    }
}

TEST(AttentionParts, AreWholeGroupsIfThreadsHaveEquallyMany) {
    const std::vector shapes{whole_sequence(2048), whole_sequence(2048)};
    for (const auto& [groups_of_sequence, threads] : {std::pair{4, 1}, {4, 8}, {4, 4}, {32, 8}, {64, 128}}) {
        for (const auto& parts : divide_attention_backward(shapes, groups_of_sequence, threads)) {
            EXPECT_EQ(std::ssize(parts), 2 * groups_of_sequence / threads);
            for (const AttentionPart& part : parts) EXPECT_EQ(part.range.end - part.range.begin, 2048);
        }
    }
    for (const auto& parts : divide_attention_backward(shapes, 4, 32)) EXPECT_FALSE(parts.empty());
}

TEST(AttentionParts, DoNotWaitForPartsThatFailed) {
    const int threads = at::get_num_threads();
    // More tokens than other tests have, so that the threads' scratch memory must grow.
    const auto shape = AttentionShape::of_whole_sequences(1, 4000, 64);
    const at::Tensor q = at::ones({4000, 64});
    const AttentionOutput output = cpu_attention(q, q, q, shape, {}, at::kFloat);
    for (const auto& [num_threads, num_failures] : {std::pair{3, 1}, {12, 9}}) {
        at::set_num_threads(num_threads);
        num_refusals = num_failures;
        EXPECT_THROW(cpu_attention_backward(q, q, q, q, output, shape, {}), std::bad_alloc);
        EXPECT_EQ(num_refusals.exchange(0), 0);
    }
    at::set_num_threads(threads);
}

}  // namespace
}  // namespace argosy::ops
