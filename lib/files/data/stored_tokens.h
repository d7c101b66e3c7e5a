// The place of a file's tokens. locate_tokens() reads what a file says of itself, so that TokenFile
// (token_file.h) can read its tokens at any time, from any thread, without HDF5. FORMAT.md specifies the
// bytes of a token file. Megatron's indexed datasets, a .bin of tokens with a .idx beside it, are read as
// they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/raw_file.h"
#include "base/units.h"

namespace argosy::data {

inline constexpr int64_t kNoEndOfText = -1;

/// More than any tokenizer has, and small enough for a counter per token in memory.
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 24;

/// A token file's description of its tokens.
struct TokenInfo {
    int64_t vocab_size = 0;
    int64_t end_of_text = kNoEndOfText;  // the token that ends a document, or kNoEndOfText
    std::string tokenizer;               // its name; "none" if the input was token numbers
    std::string tokenizer_digest;        // of the tokenizer's file, in hex; empty if it has none
};

/// The digest of a tokenizer's file: XXH3-128 as 32 hex digits, the high half first. Throws UserError if the
/// file is missing or larger than any tokenizer.
std::string tokenizer_file_digest(const std::filesystem::path& path);

/// The format on disk, shared by the reader and the writer.
namespace token_format {
inline constexpr int64_t kVersion = 2, kVersionWithLossMask = 3;
inline constexpr const char *kTokens = "tokens", *kDocuments = "document_offsets", *kChecksums = "checksums",
                            *kLossMask = "loss_mask";
inline constexpr int64_t kBlockBytes = int64_t{1} << 24;  // of one array, for each checksum

inline int64_t num_blocks(int64_t num_bytes) { return divide_up(num_bytes, kBlockBytes); }
inline int64_t num_mask_bytes(int64_t num_tokens) { return (num_tokens + 7) / 8; }
int64_t checksum(const std::byte* block, int64_t num_bytes);
/// The same of bytes in a file, which it reads in small pieces.
int64_t checksum(const RawFile& file, int64_t offset, int64_t num_bytes);
}  // namespace token_format

/// The place of an array in a file.
struct StoredArray {
    int64_t num_elements = 0, element_bytes = 0, offset = 0;
    int64_t first_checksum = 0;  // the number of its first block's checksum
    const char* content = "";    // for messages: what an element is
    int64_t num_bytes() const { return num_elements * element_bytes; }
    int64_t end() const { return offset + num_bytes(); }
};

/// The places of a file's arrays. An array that a file lacks has no elements.
struct StoredTokens {
    std::filesystem::path path;        // of the file that holds the tokens
    std::filesystem::path index_path;  // of the file that holds the other arrays
    TokenInfo info;
    StoredArray tokens;
    StoredArray documents;  // the first token of each; of Megatron its first sequence, then their number
    StoredArray checksums;
    StoredArray sequences;       // of Megatron only: the offset of the first byte of each
    StoredArray loss_mask;       // a bit per token; its elements are bytes. None: every token counts
    int64_t counted_tokens = 0;  // tokens that count as targets
    int64_t checksums_hash = 0;  // of all checksums; 0: the file has none
    int64_t index_hash = 0;      // of Megatron only: index_fingerprint()
    bool is_megatron() const { return path != index_path; }
};

/// Reads the description of a token file or, if the path ends in .bin, of an indexed dataset of Megatron.
/// Megatron's datasets do not say their vocabulary, which is then `vocab_size`. Throws UserError if the file
/// is missing, truncated, or not of these formats. Calls HDF5 for a token file, so it runs on the one thread
/// that h5/dataset.h requires.
StoredTokens locate_tokens(const std::filesystem::path& path, int64_t vocab_size = kMaxVocabSize);

/// What locate_tokens() has read, as bytes for another process, and back. REQUIRES: to_bytes() of this
/// version made `bytes`.
std::string to_bytes(std::span<const StoredTokens> files);
std::vector<StoredTokens> files_of(std::string_view bytes);

/// A hash of an index of Megatron: of its size, its head and its end.
int64_t index_fingerprint(const RawFile& index);

/// locate_tokens() for a .bin of Megatron (megatron_index.cpp).
StoredTokens locate_megatron_tokens(const std::filesystem::path& path, int64_t vocab_size);

}  // namespace argosy::data
