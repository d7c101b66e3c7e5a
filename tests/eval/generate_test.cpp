#include "eval/generate.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/raw_file.h"
#include "eval/generation_tasks.h"
#include "interop/memory_source.h"
#include "ops/ops_context.h"
#include "scratch_folder.h"
#include "support/reference.h"
#include "tokenizer/tokenizer.h"

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

/// A field of a protobuf message: bytes, or a number below 128.
std::string field(int number, const std::string& bytes) {
    std::string size;
    for (size_t left = bytes.size(); left > 0; left >>= 7)
        size.push_back(static_cast<char>((left & 127) | (left > 127 ? 128 : 0)));
    return static_cast<char>(number << 3 | 2) + size + bytes;
}
std::string field(int number, char value) { return {static_cast<char>(number << 3), value}; }

constexpr uint32_t kFirstByte = 3, kLetter = kFirstByte + 256;  // "a"

/// A SentencePiece model with byte fallback: <unk>, <s>, </s>, the bytes, and the letter.
std::unique_ptr<tokenizer::Tokenizer> byte_fallback_tokenizer() {
    enum Type : char { Normal = 1, Unknown = 2, Control = 3, Byte = 6 };
    std::string model;
    const auto add = [&](const std::string& piece, Type type) {
        model += field(1, field(1, piece) + field(3, type));
    };
    add("<unk>", Unknown);
    add("<s>", Control);
    add("</s>", Control);
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), Byte);
    add("a", Normal);
    // trainer_spec: model_type = BPE, byte_fallback = true, whose number 35 takes two bytes
    model += field(2, field(3, char{2}) + std::string("\x98\x02\x01"));
    const ScratchFolder folder;
    write_text(folder / "tokenizer.model", model);
    return tokenizer::open_tokenizer((folder / "tokenizer.model").string());
}

/// The text and the number of its tokens.
std::pair<std::string, int64_t> continued(const tokenizer::Tokenizer& tokenizer, const tokenizer::Ids& tokens,
                                          const std::vector<std::string>& stops = {}) {
    Continuation text(tokenizer, {1}, {.max_new_tokens = std::ssize(tokens), .stop_texts = stops});
    for (const uint32_t token : tokens) {
        if (text.finished()) break;
        std::vector<float> logits(tokenizer.info().vocab_size);
        logits[token] = 1;
        text.advance(logits);
    }
    EXPECT_TRUE(text.finished());
    return {text.text(), text.num_tokens()};
}

TEST(Continuation, CharactersOfByteTokens) {
    const auto tokenizer = byte_fallback_tokenizer();
    const std::string characters = "\u00e9\u20ac\U0001f600";
    tokenizer::Ids tokens = {kLetter};
    for (const unsigned char byte : characters) tokens.push_back(kFirstByte + byte);
    tokens.push_back(kLetter);
    EXPECT_EQ(continued(*tokenizer, tokens).first, "a" + characters + "a");
}

/// SentencePiece has one U+FFFD for each byte.
TEST(Continuation, IncompleteCharactersOfByteTokens) {
    const auto tokenizer = byte_fallback_tokenizer();
    const auto bytes = [](const std::string& text) {
        tokenizer::Ids tokens;
        for (const unsigned char byte : text) tokens.push_back(kFirstByte + byte);
        return tokens;
    };
    EXPECT_EQ(continued(*tokenizer, bytes("\xf0\x9f\x98")).first, "\uFFFD\uFFFD\uFFFD");
    EXPECT_EQ(continued(*tokenizer, bytes("\xe2\x82z\xe2")).first, "\uFFFD\uFFFDz\uFFFD");
}

/// text.split(stop)[0] for each stop text in turn, as the harness cuts a text. The token that completes one
/// is the last.
TEST(Continuation, EndsBeforeAStopText) {
    const auto tokenizer = tokenizer::open_tokenizer("bytes");
    const auto expect = [&](const std::vector<std::string>& stops, const std::string& text,
                            const std::string& expected, int64_t num_tokens) {
        EXPECT_EQ(continued(*tokenizer, tokenizer::Ids(text.begin(), text.end()), stops),
                  std::pair(expected, num_tokens));
    };
    expect({"Question:", "</s>"}, "a Quest</ </s> Question:", "a Quest</ ", 14);
    expect({"Question:"}, "QuestQuestion: b", "Quest", 14);
    expect({"aab"}, "aaab", "a", 4);
    expect({"b", "c"}, "acb", "a", 2);
    expect({"cd", "bc"}, "abcd", "a", 3);
    expect({"bcd", ""}, "abc", "abc", 3);
}

/// The shares that are finished after each step, if each of three contexts gets one token.
std::vector<double> finished_shares(ResidentModel& model, int64_t context_tokens) {
    const auto tokenizer = tokenizer::open_tokenizer("bytes");
    const std::vector<Tokens> contexts(3, Tokens(10, 1));
    std::vector<double> shares;
    continue_contexts(model, *tokenizer, contexts, {.max_new_tokens = 1}, context_tokens,
                      [&](double share) { shares.push_back(share); });
    return shares;
}

TEST(ContinueContexts, ReadsFewContextsAtOnce) {
    const ops::OpsContext context;
    const testing::Reference reference(testing::Reference::names_of_all().front());
    const testing::MemorySource source(reference.spec(), reference.seed());
    const interop::LayerwiseModel weights(source, reference.spec(), at::kFloat);
    ResidentModel model(weights, /*max_tokens=*/11, /*num_sequences=*/3);
    EXPECT_EQ(finished_shares(model, 30), std::vector<double>{1});
    EXPECT_EQ(finished_shares(model, 29), (std::vector{2 / 3., 1.}));
    EXPECT_EQ(finished_shares(model, 5), (std::vector{1 / 3., 2 / 3., 1.}));
}

class CachedModel : public ::testing::TestWithParam<std::string> {};

/// Two sequences grow by parts of different lengths, past the window of models that have one.
TEST_P(CachedModel, HasTheLogitsOfTransformers) {
    const ops::OpsContext context;
    const testing::Reference reference(GetParam());
    const testing::MemorySource source(reference.spec(), reference.seed());
    const interop::LayerwiseModel weights(source, reference.spec(), at::kDouble);
    const at::Tensor tokens = reference.read("tokens")[0], expected = reference.read("logits");
    const int64_t size = tokens.size(1);
    const double tolerance = 1e-6 * expected.abs().max().item<double>();
    std::vector<Tokens> sequences(2);
    for (int i = 0; i < 2; ++i) {
        for (int64_t j = 0; j < size; ++j)
            sequences[i].push_back(static_cast<uint32_t>(tokens[i][j].item<int64_t>()));
    }
    ResidentModel model(weights, size, /*num_sequences=*/2);
    std::array<int64_t, 2> lengths = {};
    for (int64_t step = 0; lengths[0] < size || lengths[1] < size; ++step) {
        std::vector<ResidentModel::NewTokens> added;
        for (int i = 0; i < 2; ++i) {
            const int64_t count = std::min((step + 2 * i) % 4 + 1, size - lengths[i]);
            if (count == 0) continue;
            added.push_back({i, std::span(sequences[i]).subspan(lengths[i], count)});
            lengths[i] += count;
        }
        const at::Tensor found = model.append(added);
        for (size_t row = 0; row < added.size(); ++row) {
            const int i = added[row].sequence;
            const at::Tensor difference =
                (found[static_cast<int64_t>(row)] - expected[i][lengths[i] - 1]).abs();
            EXPECT_LE(difference.max().item<double>(), tolerance) << i << ", token " << lengths[i] - 1;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, CachedModel, ::testing::ValuesIn(testing::Reference::names_of_all()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace argosy::eval
