// Megatron's indexed datasets, written here from the definition of the format.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "data/loader.h"
#include "data/token_file.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::data {
namespace {

using Documents = std::vector<std::vector<std::vector<int64_t>>>;  // of sequences of tokens

template <class Number>
void append(std::string& bytes, Number number) {
    for (size_t i = 0; i < sizeof(Number); ++i)
        bytes += static_cast<char>(static_cast<uint64_t>(number) >> (8 * i));
}

void append_token(std::string& bytes, int code, int64_t token) {
    if (code == 1) append(bytes, static_cast<uint8_t>(token));
    if (code == 8) append(bytes, static_cast<uint16_t>(token));
    if (code == 4) append(bytes, static_cast<int32_t>(token));
    if (code == 5) append(bytes, token);
}

class MegatronTest : public testing::Test {
  protected:
    void write(const Documents& documents, int code) const {
        std::string bin, sizes, pointers, entries;
        int64_t num_sequences = 0;
        append(entries, int64_t{0});
        for (const auto& document : documents) {
            for (const auto& sequence : document) {
                append(pointers, static_cast<int64_t>(bin.size()));
                append(sizes, static_cast<int32_t>(sequence.size()));
                for (const int64_t token : sequence) append_token(bin, code, token);
                ++num_sequences;
            }
            append(entries, num_sequences);
        }
        std::string index("MMIDIDX\0\0", 9);
        append(index, uint64_t{1});
        append(index, static_cast<uint8_t>(code));
        append(index, static_cast<uint64_t>(num_sequences));
        append(index, static_cast<uint64_t>(documents.size() + 1));
        write_file(bin_, bin);
        write_file(idx_, index + sizes + pointers + entries);
    }

    /// Writes the index with some bytes replaced.
    void spoil(size_t offset, const std::string& bytes) const {
        std::string index = read_file(idx_);
        write_file(idx_, index.replace(offset, bytes.size(), bytes));
    }

    ScratchFolder folder_;
    std::filesystem::path bin_ = folder_ / "a_text_document.bin", idx_ = folder_ / "a_text_document.idx";
    Documents documents_ = {{{1, 2, 3}}, {{4, 5}, {6}}, {}, {{7}, {}, {8, 9}}};
};

TEST_F(MegatronTest, ReadsTokensOfEveryTypeAndTheDocuments) {
    for (const int code : {1, 8, 4, 5}) {
        write(documents_, code);
        const TokenFile file(bin_);
        ASSERT_EQ(file.size(), 9);
        EXPECT_EQ(file.num_documents(), 4);
        std::vector<int64_t> tokens(9), positions(9);
        file.copy(0, 9, tokens.data());
        EXPECT_EQ(tokens, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9})) << code;
        file.copy_positions(0, 9, positions.data());
        EXPECT_EQ(positions, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2})) << code;
        EXPECT_EQ(file.find_faults([](double) {}), std::vector<std::string>());
    }
}

TEST_F(MegatronTest, RefusesAnotherIndexThanThatFound) {
    write(documents_, 8);
    const StoredTokens found = locate_tokens(bin_);
    write({{{1, 2}}, {{3, 4, 5}, {6}}, {}, {{7}, {}, {8, 9}}}, 8);  // other documents of the same tokens
    EXPECT_ERROR(TokenFile(found, nullptr), UserError,
                 "is not the file that rank 0 found there at the start");
}

TEST_F(MegatronTest, APatternThatMatchesBothFilesCountsThemOnce) {
    write(documents_, 8);
    const TokenSource source(folder_ / "a_text*");
    ASSERT_EQ(source.files().size(), 1U);
    EXPECT_EQ(source.files()[0].path, bin_);
    EXPECT_ERROR(TokenSource{folder_ / "*.idx"}, UserError, "a_text_document.idx", "not an HDF5 file");
}

TEST_F(MegatronTest, IsASourceOfSamples) {
    write(documents_, 4);
    const Loader loader(bin_, {.seq_len = 4, .shuffle = false, .attend_across_documents = false});
    std::vector<int64_t> tokens(8), targets(8), positions(8);
    loader.read(0, 2, tokens.data(), targets.data(), positions.data());
    EXPECT_EQ(targets, (std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(positions, (std::vector<int64_t>{0, 1, 2, 0, 0, 1, 0, 1}));
    const Loader starts(bin_, {.seq_len = 4, .shuffle = false, .count_document_starts = false});
    starts.read(0, 2, tokens.data(), targets.data());
    EXPECT_EQ(targets, (std::vector<int64_t>{2, 3, -1, 5, 6, -1, 8, 9}));
}

TEST_F(MegatronTest, TakesTheVocabularyOfTheModel) {
    write(documents_, 8);
    int64_t token = 0;
    TokenFile(locate_tokens(bin_, 9), nullptr).copy(7, 1, &token);
    EXPECT_EQ(token, 8);
    EXPECT_ERROR(TokenFile(locate_tokens(bin_, 9), nullptr).copy(8, 1, &token), UserError, "token 9",
                 "vocabulary of 9");
    for (const int code : {4, 5}) {
        write({{{3, -1}}}, code);
        EXPECT_ERROR(TokenFile(bin_).copy(0, 2, std::vector<int64_t>(2).data()), UserError,
                     "outside the vocab");
    }
}

TEST_F(MegatronTest, RefusesDamagedFiles) {
    const auto opens = [&] { TokenFile file(bin_); };
    write(documents_, 4);
    std::filesystem::resize_file(bin_, 32);
    EXPECT_ERROR(opens(), DamageError, "a_text_document.bin has 32 bytes", ".idx ends at byte 36");
    write(documents_, 4);
    std::filesystem::resize_file(idx_, 100);
    EXPECT_ERROR(opens(), DamageError, ".idx is truncated: it has 100 bytes", "documents end at byte 146");
    std::filesystem::resize_file(idx_, 33);
    EXPECT_ERROR(opens(), DamageError, ".idx is truncated: it has 33 bytes, and its header has 34");
    std::filesystem::resize_file(idx_, 0);
    EXPECT_ERROR(opens(), DamageError, ".idx is truncated: it has 0 bytes");
    write_file(idx_, "MMI and more");
    EXPECT_ERROR(opens(), UserError, "does not begin with MMIDIDX");
    std::filesystem::remove(idx_);
    EXPECT_ERROR(opens(), UserError, "a_text_document.idx", "No such file");
    const std::pair<size_t, std::string> damages[] = {{0, "M"},
                                                      {9, std::string("\2", 1)},
                                                      {17, std::string("\7", 1)},
                                                      {18, std::string(8, '\xff')},
                                                      {26, std::string(8, '\0')}};
    const char* messages[] = {"", "version 2; this program reads 1", "type of the tokens is 7",
                              "18446744073709551615 sequences", "lists 0 sequences or documents"};
    for (size_t i = 1; i < std::size(damages); ++i) {
        write(documents_, 4);
        spoil(damages[i].first, damages[i].second);
        EXPECT_ERROR(opens(), UserError, ".idx", messages[i]);
    }
    write(documents_, 4);
    spoil(146 - 16, std::string(1, '\x7f'));  // the first sequence of the last document
    int64_t position = 0;
    EXPECT_ERROR(TokenFile(bin_).copy_positions(8, 1, &position), DamageError,
                 "document 3 begins with sequence 127");
}

}  // namespace
}  // namespace argosy::data
