#include "data/token_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/error.h"
#include "expect_error.h"
#include "scratch_folder.h"
#include "token_files.h"

namespace argosy::data {
namespace {

constexpr TokenInfo kInfo{
    .vocab_size = 1000, .end_of_text = kNoEndOfText, .tokenizer = {}, .tokenizer_digest = {}};

/// While this object lives, no file may grow beyond a size: writing fails as on a full disk.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(int64_t num_bytes) : old_action_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &old_limit_);
        const rlimit limit{static_cast<rlim_t>(num_bytes), old_limit_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &old_limit_);
        std::signal(SIGXFSZ, old_action_);
    }

  private:
    rlimit old_limit_{};
    void (*old_action_)(int);
};

TEST(TokenWriter, WritesMoreThanItsBuffer) {
    const ScratchFolder folder;
    constexpr int64_t kCount = 3'000'000;
    for (const int64_t vocab_size : {int64_t{60'000}, int64_t{70'000}}) {
        TokenWriter writer(folder / "a.h5",
                           kMaxVocabSize);  // the stored type may be narrower
        std::vector<uint32_t> tokens(1000);
        for (int64_t begin = 0; begin < kCount; begin += 1000) {
            for (int64_t i = 0; i < 1000; ++i) tokens[i] = (begin + i) % vocab_size;
            writer.append_document(tokens);
        }
        EXPECT_EQ(writer.size(), kCount);
        writer.commit({.vocab_size = vocab_size,
                       .end_of_text = kNoEndOfText,
                       .tokenizer = "none",
                       .tokenizer_digest = ""});
        const std::vector<int64_t> read = all_tokens(TokenFile(folder / "a.h5"));
        ASSERT_EQ(read.size(), kCount);
        for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(read[i], i % vocab_size) << i;
    }
    EXPECT_EQ(folder.num_entries(), 1);
}

TEST(TokenWriter, TheSameDocumentsMakeTheSameBytes) {
    const ScratchFolder folder;
    const auto write = [&](const char* name) {
        TokenWriter writer(folder / name, 300);
        for (int i = 0; i < 1000; ++i) writer.append_document(counted_tokens(i % 300));
        writer.commit({.vocab_size = 300, .end_of_text = 299, .tokenizer = "t", .tokenizer_digest = "12ab"});
        return read_file(folder / name);
    };
    const std::string first = write("a.h5");
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // a time of creation would show
    EXPECT_TRUE(write("b.h5") == first);
}

TEST(TokenWriter, LeavesNothingWithoutCommit) {
    const ScratchFolder folder;
    {
        TokenWriter writer(folder / "a.h5", 1000);
        writer.append_document(counted_tokens(1000));
        EXPECT_FALSE(std::filesystem::exists(folder / "a.h5"));
    }
    EXPECT_EQ(folder.num_entries(), 0);
}

// The three limits stop the writer in the spool, when HDF5 sets the file's length on closing, and not at all.
TEST(TokenWriter, OnAFullDiskKeepsTheOldFileAndLeavesNothingElse) {
    const ScratchFolder folder;
    write_tokens(folder / "a.h5", {1, 2, 3}, 1000);
    const std::string old = read_file(folder / "a.h5");
    constexpr int64_t kCount = 1'000'000, kSpoolBytes = 2 * kCount;
    for (const int64_t limit_bytes :
         {int64_t{0}, int64_t{1000}, kSpoolBytes / 2, kSpoolBytes, kSpoolBytes + 100}) {
        const FileSizeLimit limit(limit_bytes);
        const auto write = [&] {
            TokenWriter writer(folder / "a.h5", 1000);
            for (int64_t i = 0; i < kCount; i += 1000) writer.append_document(counted_tokens(1000));
            writer.commit(kInfo);
        };
        EXPECT_ERROR(write(), RunError, "a.h5", "File too large");
        EXPECT_EQ(read_file(folder / "a.h5"), old) << limit_bytes;
        EXPECT_EQ(folder.num_entries(), 1) << limit_bytes;
    }
    const FileSizeLimit limit(kSpoolBytes + 1'000'000);
    TokenWriter writer(folder / "a.h5", 1000);
    for (int64_t i = 0; i < kCount; i += 1000) writer.append_document(counted_tokens(1000));
    writer.commit(kInfo);
    EXPECT_EQ(TokenFile(folder / "a.h5").size(), kCount);
}

TEST(TokenWriter, RefusesPathsThatCannotBeWritten) {
    const ScratchFolder folder;
    EXPECT_ERROR(TokenWriter(folder / "none/a.h5", 1000), UserError, "none/a.h5",
                 "none does not exist; make it first");
    write_file(folder / "plain", "");
    EXPECT_ERROR(TokenWriter(folder / "plain/a.h5", 1000), UserError, "plain/a.h5", "Not a directory");
    std::filesystem::create_directory(folder / "a.h5");
    EXPECT_ERROR(TokenWriter(folder / "a.h5", 1000), UserError, "a.h5", "not a regular file");
    EXPECT_ERROR(TokenWriter("/dev/full", 1000), UserError, "/dev/full", "not a regular file");
    EXPECT_EQ(folder.num_entries(), 2);
}

TEST(TokenWriter, RefusesAFileWithoutTokens) {
    const ScratchFolder folder;
    EXPECT_ERROR(TokenWriter(folder / "a.h5", 1000).commit(kInfo), UserError, "no tokens", "a.h5");
    EXPECT_EQ(folder.num_entries(), 0);
}

}  // namespace
}  // namespace argosy::data
