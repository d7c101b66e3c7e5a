#include "eval/generate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace argosy::eval {
namespace {

TEST(ChooseToken, TemperatureZeroIsTheFirstLikeliest) {
    EXPECT_EQ(choose_token(std::vector<float>{1, 3, 2, 3}, {}, 0), 1u);
}

/// Against softmax(logits / temperature), without the tokens that top_p leaves out.
TEST(ChooseToken, DrawsFromTheDistribution) {
    const std::vector<float> logits = {0.5, 2, -1, 1};
    const auto shares = [&](const SamplingOptions& options) {
        constexpr int kDraws = 20000;
        std::vector<double> found(logits.size());
        for (int i = 0; i < kDraws; ++i) found[choose_token(logits, options, i)] += 1.0 / kDraws;
        return found;
    };
    const auto expect = [&](const std::vector<double>& found, double temperature,
                            const std::vector<int>& kept) {
        double sum = 0;
        for (const int token : kept) sum += std::exp(logits[token] / temperature);
        for (int token = 0; token < 4; ++token) {
            const bool is_kept = std::ranges::find(kept, token) != kept.end();
            EXPECT_NEAR(found[token], is_kept ? std::exp(logits[token] / temperature) / sum : 0, 0.015)
                << token;
        }
    };
    expect(shares({.temperature = 2, .seed = 5}), 2, {0, 1, 2, 3});
    expect(shares({.temperature = 1, .seed = 6}), 1, {0, 1, 2, 3});
    // The probabilities at temperature 1 are 0.62, 0.23, 0.14 and 0.03.
    expect(shares({.temperature = 1, .top_p = 0.8, .seed = 7}), 1, {1, 3});
    expect(shares({.temperature = 1, .top_p = 0.9, .seed = 8}), 1, {0, 1, 3});
    expect(shares({.temperature = 1, .top_p = 0, .seed = 9}), 1, {1});
}

}  // namespace
}  // namespace argosy::eval
