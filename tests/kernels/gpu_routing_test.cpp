// Routing on GPUs: choices and gradients against plain loops in fp64; orders and sums of slots have the bits
// of plain loops and of the CPU's kernel.
#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "kernels/gpu_test.h"
#include "kernels/plain_routing.h"

namespace argosy::kernels {
namespace {

using Score = Router::Score;

std::vector<Router> routers() {
    std::vector<Router> made;
    for (const Score score : {Score::Softmax, Score::Sigmoid}) {
        for (const bool normalize : {true, false}) {
            for (const auto& [experts, k, groups, top_groups] : {std::array<int64_t, 4>{1, 1, 1, 1},
                                                                 {7, 3, 1, 1},
                                                                 {32, 8, 1, 1},
                                                                 {33, 33, 1, 1},
                                                                 {64, 6, 8, 3},
                                                                 {24, 8, 24, 8},
                                                                 {128, 8, 1, 1},
                                                                 {256, 8, 8, 4},
                                                                 {500, 10, 2, 1},
                                                                 {512, 40, 1, 1}})
                made.push_back({experts, k, score, normalize, 2.5, groups, top_groups});
        }
    }
    return made;
}

std::string words(const Router& router) {
    return std::to_string(router.top_k) + " of " + std::to_string(router.num_experts) + " in " +
           std::to_string(router.num_groups) + " groups" +
           (router.score == Score::Sigmoid ? ", sigmoid" : "") + (router.normalize ? ", normalized" : "");
}

class GpuRouting : public GpuTest {
  protected:
    /// Numbers of which many are equal; others differ by more than fp32 rounds. No sums of two sigmoids are
    /// equal.
    Memory<float> rough(int64_t count) {
        auto numbers = random<float>(count);
        for (int64_t i = 0; i < count; ++i) numbers[i] = std::round(numbers[i] * 4) / 4 + 0.1F;
        return numbers;
    }

    struct Choice {
        Memory<int32_t> experts;
        Memory<float> weights;
    };
    static Choice route(const Router& router, const Memory<float>& logits, const float* bias) {
        const int64_t num_tokens = logits.size() / router.num_experts;
        Choice made = {{num_tokens * router.top_k, true}, {num_tokens * router.top_k, true}};
        gpu_table()->route({router, num_tokens, logits.gpu(), bias, made.experts.gpu(), made.weights.gpu()},
                           nullptr);
        return made;
    }
};

TEST_F(GpuRouting, ChoicesAndGradientsMatchPlainLoops) {
    constexpr int64_t kTokens = 13;
    for (const Router& router : routers()) {
        SCOPED_TRACE(words(router));
        const int64_t num_experts = router.num_experts, k = router.top_k;
        const auto logits = rough(kTokens * num_experts), bias = rough(num_experts),
                   dweights = rough(kTokens * k);
        for (const bool biased : {false, true}) {
            const auto [experts, weights, dlogits] = in_any_order([&] {
                const Choice made = route(router, logits, biased ? bias.gpu() : nullptr);
                Memory<float> gradient(logits.size(), true);
                gpu_table()->route_backward(
                    {router, kTokens, dweights.gpu(), logits.gpu(), made.experts.gpu(), gradient.gpu()},
                    nullptr);
                return std::tuple(made.experts, made.weights, gradient);
            });
            EXPECT_EQ(experts.faults(), 0);
            PlainChoice right;
            Numbers right_dlogits;
            for (int64_t token = 0; token < kTokens; ++token) {
                const std::span of_token(logits.host() + token * num_experts, num_experts);
                const auto [one, its_weights] = plain_route(router, of_token, biased ? bias.host() : nullptr);
                right.experts.insert(right.experts.end(), one.begin(), one.end());
                right.weights.insert(right.weights.end(), its_weights.begin(), its_weights.end());
                const Numbers row =
                    plain_route_backward(router, of_token, {dweights.host() + token * k, one.size()}, one);
                right_dlogits.insert(right_dlogits.end(), row.begin(), row.end());
            }
            ASSERT_TRUE(std::equal(right.experts.begin(), right.experts.end(), experts.host()));
            expect_near(
                "weights", weights, [&](int64_t i) { return right.weights[i]; }, 1e-5);
            expect_near(
                "dlogits", dlogits, [&](int64_t i) { return right_dlogits[i]; }, 1e-5, 1);
        }
    }
}

TEST_F(GpuRouting, EqualScoresGoToTheLowestNumbers) {
    for (const int64_t num_experts : {5, 32, 100, 512}) {
        Memory<float> logits(2 * num_experts, true), bias(num_experts, true);
        for (int64_t i = 0; i < 2 * num_experts; ++i) logits[i] = -3;
        for (int64_t i = 0; i < num_experts; ++i) bias[i] = i % 2 == 0 ? -INFINITY : 0.0F;
        const auto all = route({num_experts, 4}, logits, nullptr).experts;
        const auto odd = route({num_experts, 4}, logits, bias.gpu()).experts;
        for (int64_t slot = 0; slot < 8; ++slot) {
            EXPECT_EQ(all[slot], slot % 4);
            if (num_experts > 8) {
                EXPECT_EQ(odd[slot], slot % 4 * 2 + 1);
            }
        }
        if (num_experts == 5) {
            EXPECT_EQ(odd[2], 0) << "the lowest of those with -infinity";
        }
    }
}

TEST_F(GpuRouting, NaNShowsAndFarLogitsDoNot) {
    for (const Score score : {Score::Softmax, Score::Sigmoid}) {
        Memory<float> logits(3 * 40, true);
        for (int64_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
        logits[40 + 5] = NAN;
        for (int64_t i = 80; i < 120; ++i) logits[i] = -1000;
        const Choice made = route({40, 2, score}, logits, nullptr);
        EXPECT_EQ(kinds(made.weights), "..nn..");
        EXPECT_EQ(made.weights.at(4), score == Score::Softmax ? 0.5 : 0);
        if (score == Score::Sigmoid) {
            EXPECT_EQ(made.experts[2], 5) << "NaN comes first";
        }
    }
}

// Parts have 256 slots, and more where there are many slots.
TEST_F(GpuRouting, SlotsOfAnExpertKeepTheirOrder) {
    for (const auto& [num_slots, num_experts] : {std::pair<int64_t, int64_t>{0, 5},
                                                 {1, 1},
                                                 {31, 3},
                                                 {33, 40},
                                                 {256, 512},
                                                 {257, 2},
                                                 {3000, 128},
                                                 {270'000, 7}}) {
        SCOPED_TRACE(std::to_string(num_slots) + " of " + std::to_string(num_experts));
        std::vector<int32_t> all(num_slots);
        for (int32_t& expert : all)  // the last of several experts has no slots
            expert = static_cast<int32_t>(engine_() % std::max<int64_t>(1, num_experts - 1));
        const Memory<int32_t> experts(all);
        const auto run = [&, num_slots = num_slots, num_experts = num_experts] {
            Memory<int32_t> order(num_slots, true), rows(num_slots, true);
            Memory<int64_t> counts(num_experts, true);
            const SortSlots args = {num_slots, num_experts, experts.gpu(), order.gpu(), counts.gpu()};
            Memory<int32_t> scratch(gpu_table()->sort_slots_scratch_bytes(args) / int64_t{sizeof(int32_t)},
                                    true);
            gpu_table()->sort_slots(args, scratch.gpu(), nullptr);
            gpu_table()->invert_order({num_slots, order.gpu(), rows.gpu()}, nullptr);
            EXPECT_EQ(scratch.faults(), 0);
            return std::tuple(order, counts, rows);
        };
        const auto [order, counts, rows] = num_slots > 10'000 ? run() : in_any_order(run);
        const PlainOrder right = plain_order(all, num_experts);
        EXPECT_EQ(order.faults() + counts.faults() + rows.faults(), 0);
        EXPECT_TRUE(std::equal(right.order.begin(), right.order.end(), order.host()));
        EXPECT_TRUE(std::equal(right.counts.begin(), right.counts.end(), counts.host()));
        for (int64_t row = 0; row < num_slots; ++row) ASSERT_EQ(rows.host()[right.order[row]], row);
    }
}

template <class T>
class GpuCombine : public GpuTest {};
using ElementTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(GpuCombine, ElementTypes);

TYPED_TEST(GpuCombine, SumsEqualTheCpus) {
    using T = TypeParam;
    for (const auto& [num_tokens, num_slots, row_size, aligned] : {std::tuple{0, 2, 8, true},
                                                                   {5, 1, 1, true},
                                                                   {7, 2, 13, true},
                                                                   {9, 3, 40, true},
                                                                   {4, 8, 1032, true},
                                                                   {3, 11, 64, true},
                                                                   {3, 23, 8, true},
                                                                   {6, 6, 32, false}}) {
        SCOPED_TRACE(std::to_string(num_slots) + " slots of rows of " + std::to_string(row_size));
        const int64_t size = row_size;
        std::vector<int32_t> numbers(num_tokens * num_slots);
        std::iota(numbers.begin(), numbers.end(), 0);
        std::shuffle(numbers.begin(), numbers.end(), this->engine_);
        const Memory<int32_t> rows(numbers);
        const auto y = this->template random<T>(num_tokens * num_slots * size, aligned);
        Memory<T> right(num_tokens * size, aligned);
        const auto args = [&, num_tokens = num_tokens, num_slots = num_slots](Memory<T>& x, Side side) {
            return Combine<T>{num_tokens, size, num_slots, rows.on(side), y.on(side), x.on(side)};
        };
        table().of<T>().combine(args(right, Side::Processor));
        const auto [x] = in_any_order([&] {
            Memory<T> found(right.size(), right.size() == 0 || aligned);
            this->template gpu<T>().combine(args(found, Side::Gpu), nullptr);
            return std::tuple(found);
        });
        EXPECT_EQ(x.faults(), 0);
        EXPECT_TRUE(same_numbers(x, right));
    }
}

// -0 alone stays -0; 2^30 + 1 - 2^30 is 0 in this order.
TYPED_TEST(GpuCombine, TermsAreAddedInOrder) {
    using T = TypeParam;
    Memory<T> y(3, true), one(1, true), sum(1, true);
    y[0] = narrow<T>(0x1p30), y[1] = narrow<T>(1), y[2] = narrow<T>(-0x1p30), one[0] = narrow<T>(-0.0);
    const Memory<int32_t> in_order({0, 1, 2}), other({0, 2, 1});
    const auto sum_of = [&](const Memory<int32_t>& rows, const Memory<T>& from) {
        this->template gpu<T>().combine({1, 1, from.size(), rows.gpu(), from.gpu(), sum.gpu()}, nullptr);
        return sum.at(0);
    };
    EXPECT_EQ(sum_of(in_order, y), 0);
    EXPECT_EQ(sum_of(other, y), 1);
    EXPECT_TRUE(std::signbit(sum_of(in_order, one)));
}

}  // namespace
}  // namespace argosy::kernels
