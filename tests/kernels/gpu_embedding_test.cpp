// Embedding on GPUs has the bits of the CPU's kernels, which process the tokens one by one.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

struct Case {
    int64_t row_size, row_stride;
    bool aligned = true;
};
constexpr Case kCases[] = {{8, 8},       {1, 1},   {7, 7},   {64, 64},
                           {1032, 1032}, {40, 72}, {40, 41}, {264, 264, false}};
constexpr int64_t kBegin = 10, kNumRows = 20;  // in a vocabulary of 40

template <class T>
class GpuEmbedding : public GpuTest {
  protected:
    /// Tokens whose numbers of occurrences are near the number that a warp or a thread processes at a time.
    Memory<int64_t> some_tokens() {
        std::vector<int64_t> tokens;
        int64_t token = 0;
        for (const int count :
             {1, 2, 15, 16, 17, 11, 31, 32, 33, 12, 13, 24, 25, 64, 65, 1, 1, 100, 2, 1, 130}) {
            tokens.insert(tokens.end(), count, token);
            token += 2;
        }
        std::shuffle(tokens.begin(), tokens.end(), this->engine_);
        return Memory<int64_t>(tokens);
    }

    /// Sums start with nonzero values, and elements between their rows do not change.
    Memory<float> gradient(const Case& size, const Memory<int64_t>& tokens, const Memory<T>& dx, Side side) {
        std::vector<int64_t> order(tokens.size()), sorted;
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, {}, [&](int64_t i) { return tokens[i]; });
        for (const int64_t i : order) sorted.push_back(tokens[i]);
        Memory<float> sums(kNumRows * size.row_stride, size.aligned);
        for (int64_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(i % 7) - 3;
        EmbeddingGradient<T> args = {tokens.size(),   size.row_size,   kBegin,      kNumRows,
                                     size.row_stride, tokens.on(side), dx.on(side), sums.on(side)};
        if (side == Side::Processor) {
            table().of<T>().embedding_gradient(args);
        } else {
            const Memory<int64_t> positions(order), sorted_tokens(sorted);
            args.tokens = sorted_tokens.gpu();
            this->template gpu<T>().embedding_gradient(args, positions.gpu(), nullptr);
        }
        return sums;
    }
};
using ElementTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(GpuEmbedding, ElementTypes);

TYPED_TEST(GpuEmbedding, RowsEqualTheCpus) {
    const auto tokens = this->some_tokens();
    for (const Case& size : kCases) {
        SCOPED_TRACE(size.row_size);
        const auto rows = this->template random<TypeParam>(kNumRows * size.row_size, size.aligned);
        Memory<TypeParam> right(tokens.size() * size.row_size, size.aligned);
        const auto args = [&](Memory<TypeParam>& x, Side side) {
            return Embedding<TypeParam>{tokens.size(),   size.row_size, kBegin,    kNumRows,
                                        tokens.on(side), rows.on(side), x.on(side)};
        };
        table().of<TypeParam>().embedding(args(right, Side::Processor));
        const auto [x] = in_any_order([&] {
            Memory<TypeParam> found(right.size(), size.aligned);
            this->template gpu<TypeParam>().embedding(args(found, Side::Gpu), nullptr);
            return std::tuple(found);
        });
        EXPECT_EQ(x.faults(), 0);
        EXPECT_TRUE(x.same_bits(right));
    }
}

TYPED_TEST(GpuEmbedding, GradientsEqualTheCpus) {
    const auto tokens = this->some_tokens();
    for (const Case& size : kCases) {
        SCOPED_TRACE(size.row_size);
        const auto dx = this->template random<TypeParam>(tokens.size() * size.row_stride, size.aligned);
        const auto [sums] =
            in_any_order([&] { return std::tuple(this->gradient(size, tokens, dx, Side::Gpu)); });
        EXPECT_EQ(sums.faults(), 0);
        EXPECT_TRUE(sums.same_bits(this->gradient(size, tokens, dx, Side::Processor)));
    }
}

// The last run of equal tokens ends with the tokens, at the end of a warp's positions and next to it.
TYPED_TEST(GpuEmbedding, OneTokenRepeated) {
    const Case size = {16, 16};
    for (const int64_t count : {1, 16, 31, 32, 33, 64, 1000}) {
        const Memory<int64_t> tokens(std::vector<int64_t>(count, kBegin + 3));
        const auto dx = this->template random<TypeParam>(count * size.row_stride);
        const auto sums = this->gradient(size, tokens, dx, Side::Gpu);
        EXPECT_TRUE(sums.same_bits(this->gradient(size, tokens, dx, Side::Processor))) << count;
    }
}

TYPED_TEST(GpuEmbedding, NoTokensOrNoColumnsAreAllowed) {
    const auto& kernels = this->template gpu<TypeParam>();
    kernels.embedding({.num_tokens = 0, .row_size = 8}, nullptr);
    kernels.embedding({.num_tokens = 8, .row_size = 0}, nullptr);
    kernels.embedding_gradient({.num_tokens = 0, .row_size = 8}, nullptr, nullptr);
    kernels.embedding_gradient({.num_tokens = 8, .row_size = 0}, nullptr, nullptr);
}

}  // namespace
}  // namespace argosy::kernels
