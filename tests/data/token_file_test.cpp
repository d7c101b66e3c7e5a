#include "data/token_file.h"

#include <gtest/gtest.h>
#include <hdf5.h>  // for files that lib/h5 cannot write

#include <array>

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

/// A complete token file, except for the attribute or dataset that `name`, `type` and `version` spoil.
void write_by_hand(const std::filesystem::path& path, const char* name, ElementType type,
                   const std::vector<int64_t>& shape, int64_t version, int64_t vocab_size) {
    h5::File file = h5::File::create(path);
    h5::Dataset tokens = file.create_dataset(name, type, shape);
    tokens.set_attribute("format_version", version);
    tokens.set_attribute("vocab_size", vocab_size);
    tokens.set_attribute("end_of_text", int64_t{-1});
    tokens.set_attribute("tokenizer", "none");
}

TEST(TokenFile, ReturnsTheTokensAndTheirAttributes) {
    const ScratchFolder folder;
    TokenWriter writer(folder / "a.h5", 300);
    const std::vector<uint32_t> first = {1, 2, 299}, second = {0, 256};
    writer.append(first);
    writer.append(second);
    writer.commit({.vocab_size = 300, .end_of_text = 256, .tokenizer = "bytes"});

    const TokenFile file(folder / "a.h5");
    EXPECT_EQ(all_tokens(file), (std::vector<int64_t>{1, 2, 299, 0, 256}));
    EXPECT_EQ(file.vocab_size(), 300);
    EXPECT_EQ(file.info().end_of_text, 256);
    EXPECT_EQ(file.info().tokenizer, "bytes");
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
    write_by_hand(path, "words", ElementType::UInt16, {5}, 1, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "a.h5", "no dataset 'tokens'", "words");
    write_chunked(path);
    EXPECT_ERROR(TokenFile{path}, UserError, "a.h5", "not stored contiguously");
    write_by_hand(path, "tokens", ElementType::Float32, {5}, 1, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "holds f32", "u16 or u32");
    write_by_hand(path, "tokens", ElementType::UInt16, {5, 2}, 1, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "2 dims");
    write_by_hand(path, "tokens", ElementType::UInt16, {0}, 1, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "empty");
    write_by_hand(path, "tokens", ElementType::UInt16, {5}, 2, 9);
    EXPECT_ERROR(TokenFile{path}, UserError, "format version 2", "reads 1");
    write_by_hand(path, "tokens", ElementType::UInt16, {5}, 1, 0);
    EXPECT_ERROR(TokenFile{path}, UserError, "vocab_size 0");
}

TEST(TokenFile, RefusesATruncatedFile) {
    const ScratchFolder folder;
    write_tokens(folder / "a.h5", counted_tokens(5000), 5000);
    std::filesystem::resize_file(folder / "a.h5", 6000);
    EXPECT_ERROR(TokenFile{folder / "a.h5"}, UserError, "a.h5", "truncated");
}

TEST(TokenFile, RefusesTokensOutsideItsVocabulary) {
    const ScratchFolder folder;
    write_by_hand(folder / "a.h5", "tokens", ElementType::UInt16, {3}, 1, 10);
    const std::vector<uint16_t> tokens = {1, 10, 2};
    const int64_t offset = h5::File::open(folder / "a.h5").open_dataset("tokens").offset();
    std::string bytes = read_file(folder / "a.h5");
    bytes.replace(offset, 6, reinterpret_cast<const char*>(tokens.data()), 6);
    write_file(folder / "a.h5", bytes);
    const TokenFile file(folder / "a.h5");
    int64_t out[3];
    file.copy(0, 1, out);
    EXPECT_ERROR(file.copy(0, 3, out), UserError, "a.h5", "token 10", "vocabulary of 10");
}

}  // namespace
}  // namespace argosy::data
