#include "layout/param_spec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace argosy::layout {
namespace {

std::vector<float> values(const ParamSpec& spec, const Slab& slab, uint64_t seed) {
    std::vector<float> out(slab.num_elements(), -1000);
    initial_values(spec, slab, seed, out.data());
    return out;
}

std::vector<float> whole(const ParamSpec& spec, uint64_t seed) {
    return values(spec, {std::vector<int64_t>(spec.shape.size(), 0), spec.shape}, seed);
}

ParamSpec normal(const char* name, std::vector<int64_t> shape, double deviation) {
    return {.name = name, .shape = std::move(shape), .init = {InitKind::Normal, deviation}};
}

/// One element by its row-major number.
float element(const char* name, uint64_t seed, int64_t number, double deviation) {
    constexpr int64_t kColumns = 65536;
    return values(normal(name, {1 << 20, kColumns}, deviation),
                  {{number / kColumns, number % kColumns}, {1, 1}}, seed)[0];
}

// The bits come from an implementation of initial_values()'s formula in another language.
TEST(InitialValues, MatchAnotherImplementation) {
    EXPECT_EQ(element("layers.0.attention.wq.weight", 42, 0, 0.02), -0x1.d5dae2p-6F);
    EXPECT_EQ(element("layers.0.attention.wq.weight", 42, 1, 0.02), 0x1.0b75b4p-8F);
    EXPECT_EQ(element("layers.0.attention.wq.weight", 43, 0, 0.02), -0x1.df3196p-7F);
    EXPECT_EQ(element("tok_embeddings.weight", 42, 12345, 1), -0x1.c6ef72p-1F);
    EXPECT_EQ(element("output.weight", 0, 0, 0.25), 0x1.474db2p-2F);
    EXPECT_EQ(element("output.weight", 0x123456789abcdef, 1000003, 0.25), 0x1.6f9126p-2F);
}

TEST(InitialValues, CountElementsPast32Bits) {
    const char* name = "layers.7.feed_forward.w2.weight";
    EXPECT_EQ(element(name, 7, (int64_t{1} << 32) - 1, 1), 0x1.c54f08p-4F);
    EXPECT_EQ(element(name, 7, int64_t{1} << 32, 1), 0x1.814242p+0F);
    EXPECT_EQ(element(name, 7, (int64_t{1} << 32) + 1, 1), 0x1.0ff0f4p-1F);
}

TEST(InitialValues, OfAnySlabAreThoseOfTheWholeTensor) {
    std::mt19937 random(6);
    const ParamSpec spec = normal("layers.3.attention.wo.weight", {13, 5, 7}, 0.02);
    const std::vector<float> all = whole(spec, 11);
    for (int round = 0; round < 100; ++round) {
        Slab slab;
        for (const int64_t extent : spec.shape) {
            const auto begin = static_cast<int64_t>(random() % (extent + 1));
            slab.offset.push_back(begin);
            slab.size.push_back(static_cast<int64_t>(random() % (extent - begin + 1)));
        }
        std::vector<float> cut;
        for (int64_t i = 0; i < slab.size[0]; ++i) {
            for (int64_t j = 0; j < slab.size[1]; ++j) {
                const auto first =
                    all.begin() + ((slab.offset[0] + i) * 5 + slab.offset[1] + j) * 7 + slab.offset[2];
                cut.insert(cut.end(), first, first + slab.size[2]);
            }
        }
        EXPECT_EQ(values(spec, slab, 11), cut);
    }
}

TEST(InitialValues, HaveTheStatisticsOfTheirDocumentation) {
    constexpr int64_t kCount = 1 << 21;
    constexpr double kDeviation = 0.02, kStandardErrors = 5;
    const std::vector<float> sample = whole(normal("statistics", {kCount / 2, 2}, kDeviation), 0);
    double sum = 0, squares = 0, fourths = 0, largest = 0;
    for (const float value : sample) {
        const double unit = value / kDeviation;
        sum += unit;
        squares += unit * unit;
        fourths += unit * unit * unit * unit;
        largest = std::max(largest, std::abs(unit));
    }
    const double root = std::sqrt(static_cast<double>(kCount));
    EXPECT_NEAR(sum / kCount, 0, kStandardErrors / root);
    EXPECT_NEAR(squares / kCount, 1, kStandardErrors * 1.4 / root);
    EXPECT_NEAR(fourths / kCount - 3, -0.15, kStandardErrors * 9 / root) << "excess kurtosis";
    EXPECT_LT(largest, 4.9);
    EXPECT_GT(largest, 4) << "two million numbers reach into the tail";
}

TEST(InitialValues, NeighboursNamesAndSeedsAreIndependent) {
    constexpr int64_t kCount = 1 << 16;
    const auto correlation = [](const std::vector<float>& a, const std::vector<float>& b, int64_t shift) {
        double sum = 0;
        for (int64_t i = 0; i + shift < kCount; ++i) sum += static_cast<double>(a[i]) * b[i + shift];
        return std::abs(sum) / kCount;
    };
    const double limit = 5 / std::sqrt(static_cast<double>(kCount));
    const std::vector<float> one = whole(normal("layers.1.w", {kCount}, 1), 1);
    EXPECT_LT(correlation(one, one, 1), limit);
    EXPECT_LT(correlation(one, whole(normal("layers.2.w", {kCount}, 1), 1), 0), limit);
    EXPECT_LT(correlation(one, whole(normal("layers.1.w", {kCount}, 1), 2), 0), limit);
}

TEST(InitialValues, ConstantFillsTheSlabAlone) {
    const ParamSpec spec{.name = "norm.weight", .shape = {5}, .init = {InitKind::Constant, 1}};
    std::vector<float> out(4, 7);
    initial_values(spec, {{2}, {3}}, 0, out.data());
    EXPECT_EQ(out, (std::vector<float>{1, 1, 1, 7}));
}

}  // namespace
}  // namespace argosy::layout
