// A token file: one long stream of token numbers in HDF5, documents one after another. Bytes on disk:
// FORMAT.md. Opening touches HDF5 (one thread, see h5/object.h); the open file is memory-mapped and
// read-only, and `copy` may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/mapped_file.h"

namespace argosy::data {

inline constexpr int64_t kTokenFormatVersion = 1;
inline constexpr const char* kTokenDataset = "tokens";
inline constexpr int64_t kNoEndOfText = -1;

/// More than any tokenizer has, and few enough to count each token of it in memory.
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 24;

/// What a token file says of its tokens.
struct TokenInfo {
    int64_t vocab_size = 0;
    int64_t end_of_text = kNoEndOfText;  // the token that ends a document, or kNoEndOfText
    std::string tokenizer;               // "bytes"; "none" for tokens that came as numbers
};

class TokenFile {
  public:
    /// UserError when the file is missing, not HDF5, or not a token file of this version.
    explicit TokenFile(std::filesystem::path path);

    const std::filesystem::path& path() const { return path_; }
    const TokenInfo& info() const { return located_.info; }
    int64_t vocab_size() const { return located_.info.vocab_size; }

    /// Tokens in the stream.
    int64_t size() const { return located_.num_tokens; }

    /// Tokens begin .. begin+count-1 into `out`. UserError when one of them lies outside the vocabulary.
    /// REQUIRES: 0 <= begin, begin + count <= size().
    void copy(int64_t begin, int64_t count, int64_t* out) const;

  private:
    struct Located {
        TokenInfo info;
        int64_t num_tokens, offset, token_bytes;
    };
    static Located locate(const std::filesystem::path& path);

    std::filesystem::path path_;
    Located located_;
    MappedFile bytes_;
};

}  // namespace argosy::data
