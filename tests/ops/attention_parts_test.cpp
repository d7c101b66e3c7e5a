// How threads share the work of attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ops/cpu_attention.h"

namespace argosy::ops {
namespace {

using Of = AttentionPart::Of;

kernels::AttentionShape whole_sequence(int64_t num_tokens, int64_t window = kNoWindow) {
    return {.num_queries = num_tokens,
            .num_keys = num_tokens,
            .head_dim = 64,
            .num_heads = 4,
            .scale = 1,
            .window = window};
}

/// Whether the parts of each group and kind are all `num_tokens` tokens, each once.
bool cover(const AttentionParts& threads, int64_t num_groups, Of of, int64_t num_tokens) {
    std::map<int64_t, int64_t> next;
    for (const auto& parts : threads) {
        for (const AttentionPart& part : parts) {
            if (part.of != of) continue;
            if (part.range.begin != next[part.group] || part.range.empty()) return false;
            next[part.group] = part.range.end;
        }
    }
    return std::ssize(next) == num_groups &&
           std::ranges::all_of(next, [&](const auto& each) { return each.second == num_tokens; });
}

/// The most scores of a thread, relative to their mean.
double imbalance(const AttentionParts& threads) {
    double sum = 0, most = 0;
    for (const auto& parts : threads) {
        double scores = 0;
        for (const auto& [group, of, range] : parts)
            scores +=
                (static_cast<double>(range.end) * range.end - static_cast<double>(range.begin) * range.begin);
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
                EXPECT_TRUE(cover(divide_attention(shapes, 2, threads), 6, Of::All, tokens)) << threads;
                const AttentionParts backward = divide_attention_backward(shapes, 2, threads);
                EXPECT_TRUE(cover(backward, 6, Of::All, tokens) ||
                            (cover(backward, 6, Of::Queries, tokens) && cover(backward, 6, Of::Keys, tokens)))
                    << threads;
            }
        }
    }
}

TEST(AttentionParts, GiveThreadsEqualWork) {
    const std::vector shapes{whole_sequence(8192)};
    for (const int threads : {8, 32, 64}) {
        const AttentionParts parts = divide_attention(shapes, 8, threads);
        EXPECT_EQ(std::ssize(parts), threads);
        EXPECT_LT(imbalance(parts), threads == 64 ? 1.15 : 1.1) << threads;
    }
}

TEST(AttentionParts, OfABackwardPassAreWholeGroupsUnlessThreadsWouldBeIdle) {
    const std::vector shapes{whole_sequence(2048)};
    const auto cuts = [&](int64_t groups, int threads) {
        const AttentionParts parts = divide_attention_backward(shapes, groups, threads);
        return parts[0].at(0).of != Of::All;
    };
    EXPECT_FALSE(cuts(8, 1));
    EXPECT_FALSE(cuts(8, 8));
    EXPECT_FALSE(cuts(12, 8));
    EXPECT_TRUE(cuts(9, 8));
    EXPECT_TRUE(cuts(8, 32));
}

}  // namespace
}  // namespace argosy::ops
