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

/// Against bytes.decode("utf-8", errors="replace") of Python; each text comes byte by byte and as a whole.
TEST(CharacterStream, ReplacesMalformedSequencesAsPythonDoes) {
    constexpr std::string_view kBad = "\uFFFD";
    const std::string bad(kBad);
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"a\u00e4\u4eca\U0001f6a2", "a\u00e4\u4eca\U0001f6a2"},
        {"\xe4\xbb", bad},  // a character that never ends
        {"\xe4\xbb"
         "a",
         bad + "a"},  // or is cut short
        {"\xf0\x9f\x9a\xf0\x9f\x9a\xa2", bad + "\U0001f6a2"},
        {"\x80\xff", bad + bad},
        {"\xc0\x80", bad + bad},  // a long form
        {"\xe0\x80\x80", bad + bad + bad},
        {"\xed\xa0\x80", bad + bad + bad},            // a surrogate
        {"\xf4\x90\x80\x80", bad + bad + bad + bad},  // above U+10FFFF
        {std::string("\0b", 2), std::string("\0b", 2)},
    };
    for (const auto& [bytes, expected] : cases) {
        CharacterStream whole, pieces;
        std::string text;
        for (const char byte : bytes) text += pieces.push({&byte, 1});
        EXPECT_EQ(text + pieces.finish(), expected);
        text = whole.push(bytes);
        EXPECT_EQ(text + whole.finish(), expected);
    }
    CharacterStream stream;
    EXPECT_EQ(stream.push("a\xe4\xbb"), "a") << "nothing incomplete is shown";
    EXPECT_EQ(stream.push("\x8a"), "\u4eca");
}

}  // namespace
}  // namespace argosy::eval
