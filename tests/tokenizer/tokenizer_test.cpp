#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "base/raw_file.h"
#include "expect_error.h"
#include "scratch_folder.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace argosy::tokenizer {
namespace {

std::string repaired(std::string_view text) {
    std::string buffer;
    return std::string(repaired_utf8(text, buffer));
}

// The examples of Unicode 16, section 3.9, table 3-8, and truncated characters.
TEST(Utf8, EachMalformedPartBecomesOneReplacement) {
    const std::string r = "\xef\xbf\xbd";
    EXPECT_EQ(repaired("plain text \xc3\xa9"), "plain text \xc3\xa9");
    EXPECT_EQ(repaired("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
    EXPECT_EQ(repaired("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), r + r + r + r + r + r + r + r + "A");
    EXPECT_EQ(repaired("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), r + r + r + r + r + "A" + r + r + "B");
    EXPECT_EQ(repaired("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), r + r + r + r + "A");
    EXPECT_EQ(repaired("eight bytes, then \xf0\x9f\x98"), "eight bytes, then " + r);
}

TEST(Nfc, ComposesAndOrders) {
    std::string buffer;
    EXPECT_EQ(to_nfc("plain", buffer), "plain");
    EXPECT_EQ(to_nfc("A\xcc\x8a-e\xcc\x81", buffer), "\xc3\x85-\xc3\xa9");
    EXPECT_EQ(to_nfc("q\xcc\x87\xcc\xa3", buffer), "q\xcc\xa3\xcc\x87");
    EXPECT_EQ(to_nfc("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", buffer), "\xea\xb0\x81");  // Hangul
}

TEST(Bytes, EachByteIsAToken) {
    const auto tokenizer = open_tokenizer("bytes");
    Ids ids = {7};
    tokenizer->encode("a\xff", ids);
    EXPECT_EQ(ids, (Ids{7, 97, 255}));
    EXPECT_EQ(tokenizer->info().vocab_size, 257);
    EXPECT_EQ(tokenizer->decode(Ids{97, 256, 255}), "a\xff");
    EXPECT_ERROR(open_tokenizer("bytes", "</s>"), UserError, "an end of text of its own");
}

TEST(OpenTokenizer, SaysWhatIsMissing) {
    const ScratchFolder folder;
    EXPECT_ERROR(open_tokenizer((folder / "none").string()), UserError, "there is no tokenizer");
    EXPECT_ERROR(open_tokenizer((folder / "").string()), UserError,
                 "has no tokenizer.json, no tokenizer.model");
    write_text(folder / "tokenizer.json", "GGUF\3" + std::string(20, '\0'));
    EXPECT_ERROR(open_tokenizer((folder / "").string()), UserError, "is a GGUF model, not a tokenizer");
    write_text(folder / "tokenizer.json", "[1]");
    EXPECT_ERROR(open_tokenizer((folder / "").string()), UserError, "is not a tokenizer");
    write_text(folder / "tokenizer.json", "{\"model\": 1}");
    EXPECT_ERROR(open_tokenizer((folder / "").string()), UserError, "tokenizer.json: \"model\"");
}

/// A text of words that are drawn from 5,000, so that threads evict pieces from their caches.
std::string many_words(uint32_t seed) {
    std::string text;
    for (int i = 0; i < 20'000; ++i) {
        seed = seed * 1664525 + 1013904223;
        text += " w" + std::to_string((seed >> 8) % 5000) + (i % 100 == 0 ? "\n" : "");
    }
    return text;
}

TEST(TrainedTokenizer, ThreadsAndSeveralTokenizersAgree) {
    const ScratchFolder folder;
    std::vector<std::unique_ptr<Tokenizer>> tokenizers;
    for (const int64_t vocab_size : {300, 400}) {
        BpeTrainer trainer(TrainedPattern::Gpt2, vocab_size);
        trainer.add(many_words(1));
        const TrainedTokenizer trained = trainer.train();
        EXPECT_EQ(trained.vocab_size, vocab_size);
        write_text(folder / "tokenizer.json", trained.tokenizer_json);
        write_text(folder / "tokenizer_config.json", trained.tokenizer_config_json);
        tokenizers.push_back(open_tokenizer((folder / "").string()));
        EXPECT_EQ(tokenizers.back()->info().end_of_text, vocab_size - 1);
        EXPECT_EQ(tokenizers.back()->info().digest.size(), 32);
    }
    const std::string text = many_words(2);
    std::vector<Ids> expected(2);
    for (size_t i = 0; i < 2; ++i) {
        tokenizers[i]->encode(text, expected[i]);
        EXPECT_EQ(tokenizers[i]->decode(expected[i]), text);
    }
    EXPECT_LT(expected[1].size(), expected[0].size());
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (size_t round = 0; round < 6; ++round) {
                const size_t i = (round + thread) % 2;
                Ids ids;
                tokenizers[i]->encode(text, ids);
                EXPECT_EQ(ids, expected[i]);
            }
        });
    }
}

}  // namespace
}  // namespace argosy::tokenizer
