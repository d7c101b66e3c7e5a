#include "data/tokenize.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/error.h"
#include "expect_error.h"
#include "scratch_folder.h"
#include "token_files.h"

namespace argosy::data {
namespace {

TokenizeResult tokenize_bytes(const TokenizeOptions& options) {
    return tokenize_with(tokenizer::kBytes, options);
}

TEST(Tokenize, TextBecomesBytesAndEndsOfText) {
    const ScratchFolder folder;
    write_file(folder / "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n");
    write_file(folder / "b.jsonl", "{\"text\": \"\\u00ff\"}\n");
    const TokenizeResult result =
        tokenize_bytes({.inputs = {folder / "a.jsonl", folder / "b.jsonl"}, .output = folder / "t.h5"});
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
    TokenizeOptions options{.inputs = {folder / "a.jsonl"}, .output = folder / "t.h5"};
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
    write_file(folder / "masks.jsonl", "{\"tokens\": [1], \"loss_mask\": [1]}\n{\"tokens\": [1]}\n");
    write_file(folder / "zeros.jsonl", "{\"tokens\": [1], \"loss_mask\": [0]}\n");
    const auto run = [&](const char* input, std::optional<int64_t> vocab_size, const char* output) {
        tokenize_bytes({.inputs = {folder / input}, .output = folder / output, .vocab_size = vocab_size});
    };
    EXPECT_ERROR(run("mixed.jsonl", {}, "t.h5"), UserError, "mixed.jsonl:2", "{\"tokens\"} record",
                 "{\"text\"}");
    EXPECT_ERROR(run("masks.jsonl", {}, "t.h5"), UserError, "masks.jsonl:2", "a {\"tokens\"} record after",
                 "{\"tokens\", \"loss_mask\"}");
    EXPECT_ERROR(run("zeros.jsonl", {}, "t.h5"), UserError, "none of the 1 tokens counts");
    EXPECT_ERROR(run("text.jsonl", 300, "t.h5"), UserError, "300", "257");
    EXPECT_ERROR(run("none.jsonl", {}, "t.h5"), UserError, "none.jsonl", "no records");
    EXPECT_ERROR(run("text.jsonl", {}, "text.jsonl"), UserError, "text.jsonl", "both input and output");
    EXPECT_ERROR(run("text.jsonl", 0, "t.h5"), UserError, "is 0");
    EXPECT_ERROR(
        tokenize_bytes({.inputs = {folder / "text.jsonl", folder / "gone.jsonl"}, .output = folder / "t.h5"}),
        UserError, "gone.jsonl", "No such file");
    EXPECT_EQ(folder.num_entries(), 5);
}

/// Records of many lengths, so that pieces and batches end within and between lines.
std::string many_records(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
        lines += fmt::format("{{\"text\": \"{}{}\"}}\n", i, std::string(i * 7919 % 4000, 'a' + i % 26));
        if (i % 10 == 0) lines += "\n";
    }
    return lines;
}

class Pieces : public testing::Test {
  protected:
    Pieces() {
        write_file(folder_ / "a.jsonl", many_records(1500));
        write_file(folder_ / "b.jsonl", many_records(20) + "{\"text\": \"no line break\"}");
        write_file(folder_ / "c.jsonl", "");
    }

    TokenizeOptions options(const char* output, int64_t piece_bytes, int num_threads) const {
        return {.inputs = {folder_ / "a.jsonl", folder_ / "c.jsonl", folder_ / "b.jsonl"},
                .output = folder_ / output,
                .num_threads = num_threads,
                .piece_bytes = piece_bytes};
    }
    std::string bytes(const char* name) const { return read_file(folder_ / name); }

    const ScratchFolder folder_;
    const std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = tokenizer::open_tokenizer(tokenizer::kBytes);
};

TEST_F(Pieces, TheFileDoesNotDependOnPiecesThreadsOrProcesses) {
    const TokenizeResult whole = tokenize_bytes(options("whole.h5", int64_t{1} << 30, 1));
    EXPECT_EQ(whole.num_documents, 1521);
    for (const int64_t piece_bytes : {70'001, 1'000'000}) {
        tokenize_bytes(options("pieces.h5", piece_bytes, 3));
        EXPECT_EQ(bytes("pieces.h5"), bytes("whole.h5"));
    }
    const TokenizeOptions shared = options("shared.h5", 100'000, 1);
    TokenizeJob first(shared, *tokenizer_), second(shared, *tokenizer_);
    first.begin();
    second.make_parts(1, 2);
    first.make_parts(0, 2);
    first.finish();
    EXPECT_EQ(bytes("shared.h5"), bytes("whole.h5"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "shared.h5.parts"));
}

TEST_F(Pieces, AnInterruptedJobGoesOn) {
    tokenize_bytes(options("whole.h5", int64_t{1} << 30, 1));
    const TokenizeOptions interrupted = options("t.h5", 100'000, 2);
    {
        TokenizeJob job(interrupted, *tokenizer_);
        job.begin();
        job.make_parts(0, 3);  // a third of the parts
    }
    const auto part = folder_ / "t.h5.parts" / "000003.part";
    const auto written = std::filesystem::last_write_time(part);
    TokenizeOptions other = interrupted;
    other.piece_bytes = 90'000;
    EXPECT_ERROR(tokenize_bytes(other), UserError, "t.h5.parts", "other inputs, other options");
    {
        TokenizeJob job(interrupted, *tokenizer_);
        job.begin();
        job.make_parts(0, 1);
        EXPECT_EQ(std::filesystem::last_write_time(part), written);
        std::filesystem::copy_file(part, folder_ / "good");
        std::fstream(part, std::ios::in | std::ios::out | std::ios::binary).seekp(100).put('\x7f');
        EXPECT_ERROR(job.finish(), UserError, "000003.part is damaged", "remove this file");
        std::filesystem::copy_file(folder_ / "good", part, std::filesystem::copy_options::overwrite_existing);
        std::filesystem::resize_file(part, std::filesystem::file_size(part) - 64);  // without its last block
        EXPECT_ERROR(job.finish(), UserError, "000003.part is damaged", "remove this file");
    }
    std::filesystem::remove(part);
    std::filesystem::copy_file(folder_ / "good", part);
    {
        TokenizeJob job(interrupted, *tokenizer_);
        job.begin();
        job.finish();
    }
    EXPECT_EQ(bytes("t.h5"), bytes("whole.h5"));
}

TEST_F(Pieces, ErrorsNameTheLineOfTheFile) {
    const std::string lines = many_records(1500);
    write_file(folder_ / "a.jsonl", lines + "{\"text\": 5}\n" + lines + "{\"text\": 6}\n");
    EXPECT_ERROR(tokenize_bytes(options("t.h5", 100'000, 3)), UserError, "a.jsonl:1651:", "but 5",
                 "--on-error skip");
    ASSERT_TRUE(std::filesystem::exists(folder_ / "t.h5.parts")) << "the next run goes on from there";

    TokenizeOptions skips = options("t.h5", 100'000, 3);
    skips.on_error = OnError::Skip;
    const TokenizeResult result = tokenize_bytes(skips);
    EXPECT_EQ(result.num_skipped, 2);
    EXPECT_EQ(result.num_documents, 3021);
}

TEST_F(Pieces, PartsWithoutSomeRecordsAreRefusedWhereErrorsEndTheRun) {
    write_file(folder_ / "a.jsonl", many_records(300) + "{\"text\": 5}\n");
    TokenizeOptions skips = options("t.h5", 100'000, 1);
    skips.on_error = OnError::Skip;
    {
        TokenizeJob interrupted(skips, *tokenizer_);
        interrupted.begin();
        interrupted.make_parts(0, 1);
    }
    {
        const TokenizeOptions fails = options("t.h5", 100'000, 1);
        TokenizeJob job(fails, *tokenizer_);
        job.begin();
        EXPECT_ERROR(job.make_parts(0, 1), UserError, "--on-error skip and left out 1 of its records");
    }
    EXPECT_EQ(tokenize_bytes(skips).num_skipped, 1);
}

TEST_F(Pieces, TheFirstErrorIsReportedWhateverTheNumberOfThreads) {
    const std::string bad = "{\"text\": 5}\n";
    write_file(folder_ / "a.jsonl",
               many_records(10) + bad + many_records(1500) + bad + many_records(1500) + bad);
    for (const int num_threads : {1, 2, 16}) {
        EXPECT_ERROR(tokenize_bytes(options("t.h5", int64_t{1} << 30, num_threads)), UserError,
                     "a.jsonl:12:");
    }
}

TEST_F(Pieces, AStreamIsNoPiece) {
    TokenizeOptions several = options("t.h5", 100'000, 1);
    several.inputs.emplace_back("-");
    EXPECT_ERROR(tokenize_bytes(several), UserError, "- is not a file", "--piece-megabytes");
}

TEST_F(Pieces, PartsOfOtherKindsAreRefused) {
    write_file(folder_ / "b.jsonl", "{\"tokens\": [1]}\n");
    EXPECT_ERROR(tokenize_bytes(options("t.h5", 2'900'000, 1)), UserError, "b.jsonl:1: a {\"tokens\"} record",
                 "{\"text\"}");
    std::filesystem::remove_all(folder_ / "t.h5.parts");
    // The second half of a file is another piece.
    const std::string texts = many_records(300);
    write_file(folder_ / "a.jsonl", texts + "\n{\"text\": 5}\n{\"tokens\": [1]}\n");
    TokenizeOptions skips = options("t.h5", std::ssize(texts) + 1, 1);
    skips.on_error = OnError::Skip;
    EXPECT_ERROR(tokenize_bytes(skips), UserError, "a.jsonl:333: a {\"tokens\"} record");
}

TEST_F(Pieces, ARecordThatIsLeftOutIsNamedByItsFirstByte) {
    const std::string bad = "{\"text\": 5}\n", lines = many_records(300) + bad + many_records(10);
    write_file(folder_ / "a.jsonl", lines);
    const std::string place = fmt::format("a.jsonl, the line from byte {} on: ", lines.find(bad));
    std::vector<std::string> skipped;
    const InputRange ranges[] = {{folder_ / "a.jsonl", 0, 1000}, {folder_ / "a.jsonl", 1000}};
    encode_documents(
        ranges, {.vocab_size = 300, .on_error = OnError::Skip}, *tokenizer_,
        [&](const EncodedDocuments& documents) {
            skipped.insert(skipped.end(), documents.skipped.begin(), documents.skipped.end());
        },
        [](int64_t) {});
    ASSERT_EQ(skipped.size(), 1U);
    EXPECT_NE(skipped[0].find(place), std::string::npos) << skipped[0];
}

TEST(Tokenize, TextFilesHoldDocumentsOrLines) {
    const ScratchFolder folder;
    write_file(folder / "a.txt", "one\ntwo\n\n\n three\n");
    const auto documents = [&](TextDocument document) {
        tokenize_bytes(
            {.inputs = {folder / "a.txt"}, .output = folder / "t.h5", .input = {.text_document = document}});
        std::string text;
        for (const int64_t token : all_tokens(TokenFile(folder / "t.h5"))) {
            text += token == 256 ? '|' : static_cast<char>(token);
        }
        return text;
    };
    EXPECT_EQ(documents(TextDocument::File), "one\ntwo\n\n\n three\n|");
    EXPECT_EQ(documents(TextDocument::Line), "one|two| three|");
    write_file(folder / "a.txt", "one\r\ntwo\r\n\r\n th\rree\r\n");
    EXPECT_EQ(documents(TextDocument::File), "one\r\ntwo\r\n\r\n th\rree\r\n|");
    EXPECT_EQ(documents(TextDocument::Line), "one|two| th\rree|");
}

}  // namespace
}  // namespace argosy::data
