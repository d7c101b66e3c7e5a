// Valid files and patterns, mutated: each is read or refused with a UserError, and what is read encodes a
// text or refuses it.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/error.h"
#include "support/fuzzing.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer_file.h"

namespace argosy::tokenizer {
namespace {

const std::string kText =
    "It's 12345 \xc3\xa9tudes,\r\n\n  <|endoftext|> e\xcc\x81 \xf0\x9f\x98\x80\xff a\xe2\x80\xa8" +
    std::string(100, 'x');

TrainedTokenizer trained_sample() {
    BpeTrainer trainer(TrainedPattern::Llama3, 270);
    trainer.add("the cat and the other cat, then the dog: the theme");
    return trainer.train();
}

std::string base64_of(unsigned char byte) {
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return {digits[byte >> 2], digits[(byte & 3) << 4], '=', '='};
}

std::string tiktoken_bytes() {
    std::string text;
    for (int byte = 0; byte < 256; ++byte)
        text += base64_of(static_cast<unsigned char>(byte)) + " " + std::to_string(byte) + "\n";
    return text;
}

void fuzz(int64_t rounds, const std::string& valid, const std::vector<std::string>& parts,
          const std::function<void(const std::string&)>& read) {
    EXPECT_NO_THROW(read(valid));
    int accepted = 0;
    for (const uint64_t seed : testing::FuzzSeeds(rounds)) {
        std::mt19937_64 random(seed);
        const std::string text = testing::mutated(valid, parts, random);
        try {
            read(text);
            ++accepted;
        } catch (const UserError& error) {
            EXPECT_STRNE(error.what(), "");
        } catch (const std::exception& error) {
            ADD_FAILURE() << "seed " << seed << ": " << error.what() << "\n" << text;
        }
    }
    EXPECT_GT(accepted, 0);
}

void use(const Tokenizer& tokenizer) {
    Ids ids;
    tokenizer.encode(kText, ids);
    for (const uint32_t id : ids) EXPECT_LT(id, tokenizer.info().vocab_size);
    tokenizer.decode(ids);
}

/// Reads `text` as tokenizer.json or tekken.json, as its contents say, and encodes with it.
void use_json(const std::string& text) { use(*parse_tokenizer("folder", {{"tokenizer.json", text}})); }

TEST(Fuzz, TokenizerJson) {
    const std::vector<std::string> parts = {"{",
                                            "}",
                                            "[",
                                            "]",
                                            "\"",
                                            ",",
                                            ":",
                                            "null",
                                            "true",
                                            "-1",
                                            "1e99",
                                            "0",
                                            "\\u0000",
                                            "\xff",
                                            "\"ByteLevel\"",
                                            "\"NFC\"",
                                            "4294967296",
                                            "\"a b\",",
                                            "\"id\"",
                                            "256",
                                            "\\p",
                                            "(",
                                            "\"lstrip\": true,"};
    const std::string whole = trained_sample().tokenizer_json;
    // The vocabulary is most of the file, so the part before it is also mutated by itself.
    const size_t vocab = whole.find("\"vocab\"");
    fuzz(600, whole, parts, [](const std::string& text) { use_json(text); });
    fuzz(1500, whole.substr(0, vocab), parts,
         [&](const std::string& text) { use_json(text + whole.substr(vocab)); });
}

TEST(Fuzz, Tekken) {
    const std::vector<std::string> parts = {
        "{", "}",  "[",   "]",          "\"",   ",",     ":", "null",       "true",     "-1",     "256",
        "0", "==", "Zg=", "4294967296", "\xff", "\\\\p", "(", "\"config\"", "\"rank\"", "\\u0000"};
    std::string vocab;
    for (int byte = 0; byte < 256; ++byte)
        vocab += R"({"rank": )" + std::to_string(byte) + R"(, "token_bytes": ")" +
                 base64_of(static_cast<unsigned char>(byte)) + R"("}, )";
    vocab = R"(, "vocab": [)" + vocab + R"({"rank": 256, "token_bytes": "dGg="}]})";
    const std::string head =
        R"({"config": {"pattern": "[^\\s]+|\\s+", "default_vocab_size": 260, "default_num_special_tokens": 3},)"
        R"( "special_tokens": [{"rank": 0, "token_str": "<unk>"}, {"rank": 1, "token_str": "<s>"},)"
        R"( {"rank": 2, "token_str": "</s>"}])";
    fuzz(1500, head, parts, [&](const std::string& text) { use_json(text + vocab); });
    fuzz(600, head + vocab, parts, [](const std::string& text) { use_json(text); });
}

// The lines of a file that is not known are all read before it is refused.
TEST(Fuzz, Tiktoken) {
    const std::vector<std::string> parts = {
        " ", "\n", "\r\n", "=", "==", "AA== 7\n", "-1", "99999999999", "!", "\xff", std::string("\0", 1)};
    const std::string bytes = tiktoken_bytes();
    fuzz(1500, "dGg= 256\nZXg= 257\ndGhl 258\nZXhl 259\n", parts, [&](const std::string& tail) {
        is_tiktoken(tail);
        try {
            read_tiktoken({.path = "tokenizer.model",
                           .content = bytes + tail,
                           .digest = "",
                           .begin_of_text = {},
                           .end_of_text = {}});
        } catch (const UserError& error) {
            if (std::string(error.what()).find(" is a tiktoken file of ") == std::string::npos) throw;
        }
    });
}

TEST(Fuzz, Patterns) {
    const std::vector<std::string> parts = {
        "(", ")", "(?:", "(?i:",  "(?=", "(?!",      "[",    "]",  "[^",   "|",
        "?", "*", "+",   "{2,3}", "{",   "}",        ",",    "\\", "\\p{", "\\p{Lu}",
        "-", "^", "$",   "&&",    "999", "\xc3\xa9", "\xff", "s",  "\\s",  std::string("\0", 1)};
    std::string repaired;
    const std::string_view text = repaired_utf8(kText, repaired);
    for (const char* valid : {kGpt2Pattern, kLlama3Pattern}) {
        fuzz(1000, valid, parts, [&](const std::string& expression) {
            const Pattern pattern(expression, "F");
            PatternSearch search(pattern, text);
            const char* end = text.data();
            for (std::string_view match; search.next(match); end = match.data() + match.size()) {
                ASSERT_GE(match.data(), end);
                ASSERT_FALSE(match.empty());
            }
        });
    }
}

TEST(Fuzz, ChatTemplate) {
    const std::vector<std::string> parts = {"{%",
                                            "%}",
                                            "{{",
                                            "}}",
                                            "-",
                                            "{% if 1 %}",
                                            "{% endif %}",
                                            "{% for message in messages %}",
                                            "{% endfor %}",
                                            "(",
                                            ")",
                                            "[",
                                            "]",
                                            ":",
                                            "::-1",
                                            "[9223372036854775807:",
                                            ".",
                                            " | trim",
                                            " is defined",
                                            " not in ",
                                            "'",
                                            "\"",
                                            "9223372036854775807",
                                            " - ",
                                            " * ",
                                            " // ",
                                            "0",
                                            ".split('a')",
                                            ".strip('a')",
                                            "\\ud800",
                                            "{#",
                                            "#}",
                                            "messages",
                                            "loop",
                                            "ns.x",
                                            "ns",
                                            "{% set ns.x = [ns.x] + [ns.x] %}",
                                            "{% set ns.x = namespace(x=ns.x) %}",
                                            "{% break %}",
                                            "{% else %}",
                                            "\r",
                                            " == messages[0]",
                                            "\n"};
    const std::string valid =
        "{% set ns = namespace(x=1) %}{%- for message in messages[0:] %}{% if loop.first and message.role != "
        "'x' %}{{ eos_token }}"
        "{% else %}{% set ns.x = ns.x + 2 * 3 %}{%- endif %}{{ message['content'] | trim + 'a'.replace('a', "
        "'b') ~ ns.x }}"
        "{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}{{ 'p' }}{% endif %}";
    const TrainedTokenizer sample = trained_sample();
    const auto tokenizer = parse_tokenizer("folder", {{"tokenizer.json", sample.tokenizer_json}});
    const std::vector<ChatMessage> messages = {{"user", " a<|endoftext|>\xc3\xa9 "},
                                               {"assistant", "\xe3\x80\x80 the cat"}};
    const auto read = [&](const std::string& text) {
        const ChatTemplate chat(
            {.text = text, .name = "t", .names = {{"eos_token", with_origin("<|endoftext|>")}}, .fault = ""},
            *tokenizer);
        Ids ids;
        std::vector<uint8_t> mask;
        chat.encode(messages, ids, mask);
        EXPECT_EQ(ids.size(), mask.size());
    };
    fuzz(1500, valid, parts, read);
    for (const char* open : {"{{ (", "{% if 1 %}", "{{ not", "{{ -", "{{ [", "{{ a.b(", "{{ 1 if 1 else",
                             "{% if 1 %}{% elif 1 %}", "{{ (1,"}) {
        std::string deep;
        for (int i = 0; i < 10'000; ++i) deep += open;
        EXPECT_THROW(read(deep), UserError);
        deep = open;
        for (int i = 0; i < 10'000; ++i) deep += std::string(open).substr(open[1] == '%' ? 0 : 2);
        EXPECT_THROW(read(deep + " }}"), UserError);
    }
}

}  // namespace
}  // namespace argosy::tokenizer
