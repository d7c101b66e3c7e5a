#include "data/token_file.h"

#include <gtest/gtest.h>
#include <hdf5.h>  // for files that lib/platform/h5 cannot write

#include <array>
#include <cstring>

#include "base/error.h"
#include "expect_error.h"
#include "h5/file.h"
#include "scratch_folder.h"
#include "token_files.h"

namespace argosy::data {
namespace {

void write_chunked(const std::filesystem::path& path) {
    const hsize_t size = 1000, chunk = 100;
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &size, nullptr), plan = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plan, 1, &chunk);
    H5Dclose(H5Dcreate2(file, "tokens", H5T_STD_U16LE, space, H5P_DEFAULT, plan, H5P_DEFAULT));
    H5Pclose(plan);
    H5Sclose(space);
    H5Fclose(file);
}

/// The tokens and attributes of a token file, but for what `name`, `type` and `version` spoil, without the
/// other datasets.
void write_by_hand(const std::filesystem::path& path, const char* name, ElementType type,
                   const std::vector<int64_t>& shape, int64_t version, int64_t vocab_size,
                   int64_t end_of_text = kNoEndOfText) {
    h5::File file = h5::File::create(path);
    h5::Dataset tokens = file.create_dataset(name, type, shape);
    tokens.set_attribute("format_version", version);
    tokens.set_attribute("vocab_size", vocab_size);
    tokens.set_attribute("end_of_text", end_of_text);
    tokens.set_attribute("tokenizer", "none");
    tokens.set_attribute("tokenizer_digest", "");
}

TEST(TokenFile, ReturnsTheTokensAndTheirAttributes) {
    const ScratchFolder folder;
    TokenWriter writer(folder / "a.h5", 300);
    const std::vector<uint32_t> first = {1, 2, 299}, second = {0, 256};
    writer.append_document(first);
    writer.append_document(second);
    writer.commit({.vocab_size = 300, .end_of_text = 256, .tokenizer = "bytes", .tokenizer_digest = "12ab"});

    const TokenFile file(folder / "a.h5");
    EXPECT_EQ(all_tokens(file), (std::vector<int64_t>{1, 2, 299, 0, 256}));
    EXPECT_EQ(file.vocab_size(), 300);
    EXPECT_EQ(file.info().end_of_text, 256);
    EXPECT_EQ(file.info().tokenizer, "bytes");
    EXPECT_EQ(file.info().tokenizer_digest, "12ab");
    EXPECT_EQ(file.num_documents(), 2);
    std::array<int64_t, 2> part{};
    file.copy(2, 2, part.data());
    EXPECT_EQ(part, (std::array<int64_t, 2>{299, 0}));
    EXPECT_ERROR(file.copy(4, 2, part.data()), RunError, "4 + 2 of 5");
}

TEST(TokenFile, StoresTwoBytesUpToAVocabularyOf65536AndFourBeyond) {
    const ScratchFolder folder;
    for (const int64_t vocab_size : {65536, 65537}) {
        const auto largest = static_cast<uint32_t>(vocab_size - 1);
        write_tokens(folder / "a.h5", {0, largest, 7}, vocab_size);
        EXPECT_EQ(all_tokens(TokenFile(folder / "a.h5")), (std::vector<int64_t>{0, largest, 7}));
        const h5::File file = h5::File::open(folder / "a.h5");
        EXPECT_EQ(file.open_dataset("tokens").type(),
                  vocab_size == 65536 ? ElementType::UInt16 : ElementType::UInt32);
    }
}

TEST(TokenFile, RefusesOtherFiles) {
    const ScratchFolder folder;
    const auto path = folder / "a.h5";
    EXPECT_ERROR(TokenFile{path}, UserError, "a.h5", "No such file");
    write_file(path, "{\"text\": \"not HDF5\"}");
    EXPECT_ERROR(TokenFile{path}, UserError, "a.h5", "not an HDF5 file");
    write_by_hand(path, "words", ElementType::UInt16, {5}, 2, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "a.h5", "no dataset 'tokens'", "words");
    write_chunked(path);
    EXPECT_ERROR(TokenFile{path}, UserError, "a.h5", "not stored contiguously");
    write_by_hand(path, "tokens", ElementType::Float32, {5}, 2, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "holds f32", "u16 or u32");
    write_by_hand(path, "tokens", ElementType::UInt16, {5, 2}, 2, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "2 dims");
    write_by_hand(path, "tokens", ElementType::UInt16, {0}, 2, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "empty");
    for (const int version : {1, 4}) {
        write_by_hand(path, "tokens", ElementType::UInt16, {5}, version, 9);
        EXPECT_ERROR(TokenFile{path}, UserError, fmt::format("format version {}", version), "reads 2 and 3");
    }
    write_by_hand(path, "tokens", ElementType::UInt16, {5}, 2, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "no dataset 'document_offsets'");
    write_by_hand(path, "tokens", ElementType::UInt16, {5}, 2, 0);
    EXPECT_ERROR(TokenFile{path}, UserError, "vocab_size 0");
}

TEST(TokenFile, RefusesATruncatedFile) {
    const ScratchFolder folder;
    write_tokens(folder / "a.h5", counted_tokens(5000), 5000);
    std::filesystem::resize_file(folder / "a.h5", 6000);
    EXPECT_ERROR(TokenFile{folder / "a.h5"}, DamageError, "a.h5 is truncated", "Copy or make it again");
}

TEST(TokenFile, RefusesAnEndOfTextOutsideOfItsVocabulary) {
    const ScratchFolder folder;
    for (const int64_t end_of_text : {-2, 10, 1000}) {
        write_by_hand(folder / "a.h5", "tokens", ElementType::UInt16, {6}, 2, 10, end_of_text);
        EXPECT_ERROR(TokenFile{folder / "a.h5"}, DamageError, "a.h5",
                     fmt::format("has end_of_text {}, outside of its vocabulary of 10", end_of_text));
    }
}

int64_t offset_of(const std::filesystem::path& path, const char* dataset) {
    return h5::File::open(path).open_dataset(dataset).offset();
}

/// Changes a bit of the byte at `offset`.
void damage(const std::filesystem::path& path, int64_t offset) {
    std::string bytes = read_file(path);
    bytes.at(offset) ^= 1;
    write_file(path, bytes);
}

std::vector<std::string> faults_of(const std::filesystem::path& path) {
    return TokenFile(path, TokenChecks::None).find_faults([](double) {});
}

constexpr int64_t kTwoBlocks = 10'000'000;  // tokens of two bytes: one block of 16 MiB, and a part of another

TEST(TokenFile, VerifiesABlockWhenItIsFirstRead) {
    const ScratchFolder folder;
    const auto path = folder / "a.h5";
    write_tokens(path, std::vector<uint32_t>(kTwoBlocks, 7), 1000);
    EXPECT_EQ(faults_of(path), std::vector<std::string>());
    constexpr int64_t kBlockTokens = 8 << 20;
    damage(path, offset_of(path, "tokens") + 2 * (kTwoBlocks - 1));
    const TokenFile file(path);
    int64_t out[2];
    file.copy(kBlockTokens - 2, 2, out);
    for (int i = 0; i < 2; ++i) {
        EXPECT_ERROR(file.copy(kBlockTokens - 1, 2, out), Error, "a.h5: tokens 8388608 .. 9999999", "damaged",
                     "prepare-data --verify");
    }
    try {
        file.copy(kBlockTokens, 1, out);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::CheckFailed);
    }
    TokenFile(path, TokenChecks::None).copy(kBlockTokens, 1, out);
    EXPECT_EQ(faults_of(path),
              std::vector<std::string>{"tokens 8388608 .. 9999999 do not match their checksum"});
}

TEST(TokenFile, VerifiesNothingMoreOnceTheBudgetIsSpent) {
    const ScratchFolder folder;
    const auto path = folder / "a.h5";
    write_tokens(path, std::vector<uint32_t>(1000, 7), 1000);
    damage(path, offset_of(path, "tokens"));
    const auto budget = std::make_shared<CheckBudget>();
    while (budget->take(1 << 20)) {
    }
    const TokenFile file(locate_tokens(path), budget);
    int64_t token = 0;
    for (int i = 0; i < 999; ++i) file.copy(i, 1, &token);
    EXPECT_ERROR(file.copy(999, 1, &token), DamageError, "tokens 0 .. 999", "damaged");
}

TEST(TokenFile, FindsDamagedDocumentOffsetsAndChecksums) {
    const ScratchFolder folder;
    const auto path = folder / "a.h5";
    for (const char* dataset : {"document_offsets", "checksums"}) {
        write_tokens(path, {1, 2, 3}, 1000);
        damage(path, offset_of(path, dataset));
        EXPECT_EQ(faults_of(path).size(), 1U) << dataset;
        if (dataset == std::string("checksums")) continue;  // the first one is that of the tokens
        int64_t position = 0;
        EXPECT_ERROR(TokenFile(path).copy_positions(0, 1, &position), DamageError, "a.h5",
                     "the offsets of documents 0 .. 0", "do not match their checksum");
    }
    // Offsets that descend, with the right checksum.
    write_tokens(path, {1, 2, 3}, 1000);
    std::string bytes = read_file(path);
    const int64_t wrong = 4, checksum = token_format::checksum(reinterpret_cast<const std::byte*>(&wrong), 8);
    std::memcpy(bytes.data() + offset_of(path, "document_offsets"), &wrong, 8);
    std::memcpy(bytes.data() + offset_of(path, "checksums") + 8, &checksum, 8);
    write_file(path, bytes);
    EXPECT_EQ(faults_of(path),
              std::vector<std::string>{
                  "document 0 begins at token 4, and the document before it at 0; the file has 3 tokens"});
}

TEST(TokenFile, RefusesTokensOutsideItsVocabulary) {
    const ScratchFolder folder;
    write_tokens(folder / "a.h5", {1, 9, 2}, 10);
    const std::vector<uint16_t> tokens = {1, 10, 2};
    const int64_t offset = offset_of(folder / "a.h5", "tokens");
    std::string bytes = read_file(folder / "a.h5");
    bytes.replace(offset, 6, reinterpret_cast<const char*>(tokens.data()), 6);
    write_file(folder / "a.h5", bytes);
    const TokenFile file(folder / "a.h5", TokenChecks::None);
    int64_t out[3];
    file.copy(0, 1, out);
    EXPECT_ERROR(file.copy(0, 3, out), UserError, "a.h5", "token 10", "vocabulary of 10");
}

}  // namespace
}  // namespace argosy::data
