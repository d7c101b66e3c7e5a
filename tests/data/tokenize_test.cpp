#include "data/tokenize.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"
#include "scratch_folder.h"
#include "token_files.h"

namespace argosy::data {
namespace {

TokenizeResult tokenize_bytes(const TokenizeOptions& options) {
    return tokenize(options, *tokenizer::open_tokenizer(tokenizer::kBytes));
}

TEST(Tokenize, TextBecomesBytesAndEndsOfText) {
    const ScratchFolder folder;
    write_file(folder / "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n");
    write_file(folder / "b.jsonl", "{\"text\": \"\\u00ff\"}\n");
    const TokenizeResult result = tokenize_bytes(
        {.inputs = {folder / "a.jsonl", folder / "b.jsonl"}, .output = folder / "t.h5", .vocab_size = {}});
    EXPECT_EQ(result.num_tokens, 7);
    EXPECT_EQ(result.num_documents, 3);
    EXPECT_EQ(result.vocab_size, 257);
    const TokenFile file(folder / "t.h5");
    EXPECT_EQ(all_tokens(file), (std::vector<int64_t>{'a', 'b', 256, 256, 0xc3, 0xbf, 256}));
    EXPECT_EQ(file.info().end_of_text, 256);
    EXPECT_EQ(file.info().tokenizer, "bytes");
}

TEST(Tokenize, TokensStayAsTheyAre) {
    const ScratchFolder folder;
    write_file(folder / "a.jsonl", "{\"tokens\": [5, 70000]}\n{\"tokens\": [0]}\n");
    TokenizeOptions options{.inputs = {folder / "a.jsonl"}, .output = folder / "t.h5", .vocab_size = {}};
    EXPECT_EQ(tokenize_bytes(options).vocab_size, 70001);
    const TokenFile file(folder / "t.h5");
    EXPECT_EQ(all_tokens(file), (std::vector<int64_t>{5, 70000, 0}));
    EXPECT_EQ(file.info().end_of_text, kNoEndOfText);

    options.vocab_size = 128256;
    tokenize_bytes(options);
    EXPECT_EQ(TokenFile(folder / "t.h5").vocab_size(), 128256);
    options.vocab_size = 70000;
    EXPECT_ERROR(tokenize_bytes(options), UserError, "a.jsonl:1", "70000", "0 .. 69999");
}

TEST(Tokenize, RefusesInputThatCannotBeOneTokenFileAndLeavesNothing) {
    const ScratchFolder folder;
    write_file(folder / "mixed.jsonl", "{\"text\": \"a\"}\n{\"tokens\": [1]}\n");
    write_file(folder / "text.jsonl", "{\"text\": \"a\"}\n");
    write_file(folder / "none.jsonl", "\n");
    const auto run = [&](const char* input, std::optional<int64_t> vocab_size, const char* output) {
        tokenize_bytes({.inputs = {folder / input}, .output = folder / output, .vocab_size = vocab_size});
    };
    EXPECT_ERROR(run("mixed.jsonl", {}, "t.h5"), UserError, "mixed.jsonl:2", "{\"tokens\"} record",
                 "{\"text\"}");
    EXPECT_ERROR(run("text.jsonl", 300, "t.h5"), UserError, "300", "257");
    EXPECT_ERROR(run("none.jsonl", {}, "t.h5"), UserError, "none.jsonl", "no records");
    EXPECT_ERROR(run("text.jsonl", {}, "text.jsonl"), UserError, "text.jsonl", "both input and output");
    EXPECT_ERROR(run("text.jsonl", 0, "t.h5"), UserError, "is 0");
    EXPECT_EQ(folder.num_entries(), 3);
}

}  // namespace
}  // namespace argosy::data
