#include "data/token_source.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <set>

#include "base/error.h"
#include "data/loader.h"
#include "expect_error.h"
#include "h5/file.h"
#include "scratch_folder.h"
#include "token_files.h"

namespace argosy::data {
namespace {

/// The inputs of all samples, in the order of the files.
std::vector<int64_t> inputs_of(const Loader& loader) {
    std::vector<int64_t> tokens(loader.num_samples() * loader.seq_len()), targets(tokens);
    loader.read(0, loader.num_samples(), tokens.data(), targets.data());
    return tokens;
}

class TokenSourceTest : public testing::Test {
  protected:
    TokenSourceTest() {
        std::filesystem::create_directory(folder_ / "data");
        write_tokens(folder_ / "data/b.h5", {10, 11, 12, 13, 14, 15}, 50);
        write_tokens(folder_ / "data/a.h5", {1, 2, 3, 4, 5, 6, 7, 8}, 40);
        write_tokens(folder_ / "data/c.h5", {20, 21}, 30);  // has no sample of 3 tokens
        write_file(folder_ / "data/notes.txt", "no tokens");
    }

    std::vector<int64_t> read(const std::string& path) const {
        return inputs_of(Loader(folder_ / path, {.seq_len = 3, .shuffle = false}));
    }

    ScratchFolder folder_;
};

TEST_F(TokenSourceTest, FilesFormOneStreamOfSamplesInTheOrderOfTheirNames) {
    EXPECT_EQ(read("data/b.h5"), (std::vector<int64_t>{10, 11, 12}));
    EXPECT_EQ(read("data"), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 10, 11, 12}));
    EXPECT_EQ(read("data/[ab].h5"), read("data"));
    EXPECT_EQ(read("d*/?.h5"), read("data"));
    EXPECT_EQ(TokenSource(folder_ / "data").vocab_size(), 50);
    EXPECT_EQ(TokenSource(folder_ / "data").num_tokens(), 16);
}

TEST_F(TokenSourceTest, RefusesPathsWithoutTokenFiles) {
    std::filesystem::create_directory(folder_ / "empty");
    EXPECT_ERROR(TokenSource{folder_ / "empty"}, UserError, "empty holds no token file");
    EXPECT_ERROR(TokenSource{folder_ / "data/x*.h5"}, UserError, "no file matches", "x*.h5");
    EXPECT_ERROR(TokenSource{folder_ / "none.h5"}, UserError, "none.h5", "No such file");
    write_file(folder_ / "data/d.h5", "no HDF5");
    EXPECT_ERROR(TokenSource{folder_ / "data"}, UserError, "d.h5", "not an HDF5 file");
    EXPECT_ERROR(Loader(folder_ / "data/c.h5", {.seq_len = 3}), UserError, "c.h5 holds 2 tokens", "needs 4");
}

TEST_F(TokenSourceTest, OnlyTheFilesReadLastStayOpen) {
    const TokenSource source(folder_ / "data", {.max_open_files = 2});
    const std::weak_ptr<const TokenFile> first = source.open(0), second = source.open(1);
    EXPECT_EQ(source.open(0).get(), first.lock().get());
    source.open(2);
    EXPECT_FALSE(first.expired());
    EXPECT_TRUE(second.expired());
    EXPECT_EQ(source.open(1)->size(), 6);
    EXPECT_TRUE(first.expired());
}

TEST_F(TokenSourceTest, IsTheSameFromWhatAnotherRankHasFound) {
    std::filesystem::create_directory(folder_ / "odd\xff");  // a path need not be UTF-8
    std::filesystem::copy(folder_ / "data/a.h5", folder_ / "odd\xff/a.h5");
    for (const char* name : {"data", "odd\xff"}) {
        const TokenSource found(folder_ / name);
        const std::filesystem::path away = folder_ / "away";
        std::filesystem::rename(folder_ / name, away);  // nothing is read before a file is needed
        const auto told = std::make_shared<const TokenSource>(
            folder_ / name, files_of(to_bytes(found.files())), SourceOptions{});
        EXPECT_EQ(told->num_tokens(), found.num_tokens());
        EXPECT_EQ(told->vocab_size(), found.vocab_size());
        const Loader loader({{told}}, {.seq_len = 3, .shuffle = false});
        std::filesystem::rename(away, folder_ / name);
        EXPECT_EQ(inputs_of(loader), read(name));
        EXPECT_EQ(loader.digest(), Loader(folder_ / name, {.seq_len = 3}).digest());
    }
}

TEST_F(TokenSourceTest, RefusesAFileThatIsAnotherOneThanThatFound) {
    const TokenSource source(folder_ / "data");
    write_tokens(folder_ / "data/a.h5", {1, 2, 3, 4, 5, 6, 7, 9}, 40);
    EXPECT_ERROR(source.open(0), UserError, "a.h5 is not the file that rank 0 found there at the start",
                 "copy the file to all nodes");
}

TEST(CheckBudget, AllowsTheFirstBlocksAndAsManyBytesAsAreReadAsTokens) {
    CheckBudget budget;
    for (int64_t bytes = 0; bytes < CheckBudget::kFreeBytes; bytes += token_format::kBlockBytes)
        EXPECT_TRUE(budget.take(token_format::kBlockBytes));
    EXPECT_FALSE(budget.take(1));
    budget.add(100);
    EXPECT_FALSE(budget.take(101));
    EXPECT_TRUE(budget.take(100));
    EXPECT_FALSE(budget.take(1));
}

int64_t resident_bytes() {
    int64_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return resident * 4096;
}

// 10^13 tokens: one sparse file of 10^9 tokens under 10^4 names.
TEST(ManyFiles, AreOpenedLazilyInBoundedMemory) {
    const ScratchFolder folder;
    constexpr int64_t kTokens = 1'000'000'000, kFiles = 10'000, kLength = 4096;
    {
        h5::File file = h5::File::create(folder / "00000.h5");
        h5::Dataset tokens = file.create_dataset("tokens", ElementType::UInt16, std::array{kTokens});
        tokens.set_attribute("format_version", token_format::kVersion);
        tokens.set_attribute("vocab_size", 100);
        tokens.set_attribute("end_of_text", kNoEndOfText);
        tokens.set_attribute("tokenizer", "none");
        tokens.set_attribute("tokenizer_digest", "");
        file.create_dataset("document_offsets", ElementType::Int64, std::array{int64_t{1}});
        const int64_t num_checksums = token_format::num_blocks(2 * kTokens) + 1;
        file.create_dataset("checksums", ElementType::Int64, std::array{num_checksums});
    }
    for (int64_t i = 1; i < kFiles; ++i)
        std::filesystem::create_hard_link(folder / "00000.h5", folder / fmt::format("{:05}.h5", i));
    const int64_t before = resident_bytes();
    const auto source =
        std::make_shared<TokenSource>(folder / "", SourceOptions{.checks = TokenChecks::None});
    EXPECT_LT(to_bytes(source->files()).size(), kFiles * 256) << "what other ranks get";
    const Loader loader({{source}}, {.seq_len = kLength, .seed = 3});
    EXPECT_EQ(loader.num_samples(), kFiles * ((kTokens - 1) / kLength));
    std::vector<int64_t> tokens(kLength), targets(tokens);
    std::set<int64_t> files;
    for (int64_t position = 0; position < 1000; ++position) {
        loader.read(position, 1, tokens.data(), targets.data());
        files.insert(loader.sample_at(position) / ((kTokens - 1) / kLength));
    }
    EXPECT_GT(files.size(), 900U);
    EXPECT_LT(resident_bytes() - before, int64_t{32} << 20);
    const auto open_files = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    EXPECT_LT(open_files, 300);
}

}  // namespace
}  // namespace argosy::data
