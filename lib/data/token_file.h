// A token file: one long stream of token numbers in HDF5, one document after another. FORMAT.md specifies the
// bytes on disk. Opening uses HDF5 (one thread, see h5/dataset.h). The open file is memory-mapped and
// read-only; `copy` may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace argosy::data {

// A range of a file, mapped into memory for reading as long as the object lives.

class MappedFile {
  public:
    /// UserError when the file ends before offset + num_bytes. REQUIRES: num_bytes > 0.
    MappedFile(const std::filesystem::path& path, int64_t offset, int64_t num_bytes);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    /// The byte at `offset`.
    const std::byte* data() const { return data_; }

  private:
    void* pages_;
    int64_t mapped_bytes_;
    const std::byte* data_;
};

inline constexpr int64_t kTokenFormatVersion = 1;
inline constexpr const char* kTokenDataset = "tokens";
inline constexpr int64_t kNoEndOfText = -1;

/// More than any tokenizer has, and small enough to hold a counter per token in memory.
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 24;

/// A token file's description of its tokens.
struct TokenInfo {
    int64_t vocab_size = 0;
    int64_t end_of_text = kNoEndOfText;  // the token that ends a document, or kNoEndOfText
    std::string tokenizer;               // "bytes"; "none" if the input was token numbers
};

class TokenFile {
  public:
    /// UserError when the file is missing, not HDF5, or not a token file of this version.
    explicit TokenFile(std::filesystem::path path);

    const std::filesystem::path& path() const { return path_; }
    const TokenInfo& info() const { return located_.info; }
    int64_t vocab_size() const { return located_.info.vocab_size; }

    /// Number of tokens in the stream.
    int64_t size() const { return located_.num_tokens; }

    /// Copies tokens begin .. begin+count-1 to `out`. UserError when one of them is outside the vocabulary.
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
