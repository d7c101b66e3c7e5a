#include "eval/requests.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::eval {
namespace {

/// Bytes, but "ab" and " c" are one token, and each text follows a begin of text.
class Pairs : public tokenizer::Tokenizer {
  public:
    Pairs()
        : Tokenizer({.name = "pairs",
                     .vocab_size = 260,
                     .prefix = {256},
                     .begin_of_text = 256,
                     .end_of_text = 257}) {}
    void encode(std::string_view text, tokenizer::Ids& ids) const override {
        for (size_t i = 0; i < text.size(); ++i) {
            const std::string_view pair = text.substr(i, 2);
            if (text[i] == '^') {
                ids.push_back(256);
            } else if (pair == "ab" || pair == " c") {
                ids.push_back(pair == "ab" ? 258 : 259);
                ++i;
            } else {
                ids.push_back(static_cast<unsigned char>(text[i]));
            }
        }
    }
    std::string decode(std::span<const uint32_t>) const override { return ""; }
};

const Pairs kPairs;

Requests requests_of(const std::string& context, const std::string& continuation, int64_t max_length = 100) {
    const Document document{.place = "t.jsonl:3", .contexts = {context}, .continuations = {continuation}};
    return make_requests({&document, 1}, OutputType::Continuation, &kPairs, max_length);
}

void expect_pair(const Requests& found, const Tokens& record, const Window& window) {
    EXPECT_EQ(found.records, std::vector<Tokens>{record});
    EXPECT_EQ(found.windows, std::vector<Window>{window});
}

TEST(Requests, AContinuationIsWhatFollowsTheContextsTokens) {
    expect_pair(requests_of("x", " d"), {256, 'x', ' ', 'd'}, {0, 0, 3, 2});
    expect_pair(requests_of("x", " c"), {256, 'x', 259}, {0, 0, 2, 1});
    // "a" alone is one token, and "ab" is one too: what follows the first token of the whole is predicted.
    expect_pair(requests_of("a", "bd"), {256, 'a', 'd'}, {0, 0, 2, 1});
}

TEST(Requests, WhitespaceMovesFromTheContextToTheContinuation) {
    expect_pair(requests_of("x  ", "d"), {256, 'x', ' ', ' ', 'd'}, {0, 0, 4, 3});
    expect_pair(requests_of("x\n", " c"), {256, 'x', '\n', 259}, {0, 0, 3, 2});
}

TEST(Requests, AnEmptyContextIsThePrefixToken) {
    expect_pair(requests_of("", "d"), {256, 'd'}, {0, 0, 1, 1});
    expect_pair(requests_of(" ", "d"), {256, ' ', 'd'}, {0, 0, 2, 2});
    expect_pair(requests_of("", "^d"), {256, 'd'}, {0, 0, 1, 1});
}

TEST(Requests, ATextMayBringItsBeginOfText) {
    expect_pair(requests_of("^x", "d"), {256, 'x', 'd'}, {0, 0, 2, 1});
}

TEST(Requests, LongOnesLoseTheirBeginning) {
    const Requests cut = requests_of("xyz", "de", 3);
    expect_pair(cut, {256, 'x', 'y', 'z', 'd', 'e'}, {0, 2, 3, 2});
    EXPECT_EQ(cut.num_cut, 1);
    EXPECT_EQ(requests_of("xyz", "de", 5).num_cut, 0);
    EXPECT_ERROR(requests_of("x", "defg", 3), UserError, "t.jsonl:3", "4 tokens", "at most 3");
    EXPECT_ERROR(requests_of("a", "b"), UserError, "t.jsonl:3", "adds no token");
}

TEST(Requests, EachChoiceIsARecord) {
    const Document one{.contexts = {"x"}, .continuations = {"d", "e"}},
        two{.contexts = {"y", "z"}, .continuations = {"d", "d"}};
    const std::vector<Document> documents = {one, two};
    const Requests found = make_requests(documents, OutputType::Choices, &kPairs, 9);
    EXPECT_EQ(found.records,
              (std::vector<Tokens>{{256, 'x', 'd'}, {256, 'x', 'e'}, {256, 'y', 'd'}, {256, 'z', 'd'}}));
    EXPECT_EQ(found.first_record, (std::vector<size_t>{0, 2, 4}));
}

/// The tokens of the template are predicted too.
TEST(Requests, ATextFollowsThePrefixToken) {
    const std::vector<Document> documents = {{.text = "xyz"}, {.text = ""}};
    const Requests found = make_requests(documents, OutputType::Rolling, &kPairs, 3);
    EXPECT_EQ(found.records, (std::vector<Tokens>{{256, 256, 'x', 'y', 'z'}, {256, 256}}));
    EXPECT_EQ(found.windows, (std::vector<Window>{{0, 0, 3, 3}, {0, 1, 3, 1}, {1, 0, 1, 1}}));
}

TEST(Requests, RecordsOfTokensAreTakenAsTheyAre) {
    const std::vector<Document> documents = {{.tokens = {1, 2, 3}}};
    const Requests found = make_requests(documents, OutputType::TokenIds, nullptr, 0);
    expect_pair(found, {1, 2, 3}, {0, 0, 2, 2});
}

}  // namespace
}  // namespace argosy::eval
