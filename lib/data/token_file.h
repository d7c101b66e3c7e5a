// A token file: one long stream of token numbers in HDF5, one document after another. FORMAT.md specifies the
// bytes on disk. TokenFile reads a token file, TokenWriter writes one. Their constructors and
// TokenWriter::commit call HDF5, so they run on the one thread that h5/dataset.h requires.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/output.h"
#include "base/raw_file.h"

namespace argosy::data {

/// A range of a file, mapped into memory for reading as long as the object lives.
class MappedFile {
  public:
    /// Throws UserError if the file ends before offset + num_bytes. REQUIRES: num_bytes > 0.
    MappedFile(const std::filesystem::path& path, int64_t offset, int64_t num_bytes);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;

    /// The byte at `offset`.
    const std::byte* data() const { return data_; }

  private:
    void* pages_;
    int64_t mapped_bytes_;
    const std::byte* data_;
};

inline constexpr int64_t kNoEndOfText = -1;

/// More than any tokenizer has, and small enough for a counter per token in memory.
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 24;

/// A token file's description of its tokens.
struct TokenInfo {
    int64_t vocab_size = 0;
    int64_t end_of_text = kNoEndOfText;  // the token that ends a document, or kNoEndOfText
    std::string tokenizer;               // "bytes"; "none" if the input was token numbers
};

/// An open token file, memory-mapped and read-only. Any thread may call `copy`.
class TokenFile {
  public:
    /// Throws UserError if the file is missing, not HDF5, or not a token file of this version.
    explicit TokenFile(std::filesystem::path path);

    const std::filesystem::path& path() const { return path_; }
    const TokenInfo& info() const { return stored_.info; }
    int64_t vocab_size() const { return stored_.info.vocab_size; }

    /// Number of tokens in the stream.
    int64_t size() const { return stored_.num_tokens; }

    /// Copies tokens begin .. begin+count-1 to `out`. Throws UserError if one of them is outside the
    /// vocabulary. REQUIRES: 0 <= begin, begin + count <= size().
    void copy(int64_t begin, int64_t count, int64_t* out) const;

  private:
    struct StoredTokens {
        TokenInfo info;
        int64_t num_tokens, offset, token_bytes;
    };
    static StoredTokens locate(const std::filesystem::path& path);

    std::filesystem::path path_;
    StoredTokens stored_;
    MappedFile bytes_;
};

/// Writes a token file of unknown length in bounded memory: tokens are first spooled into a nameless file,
/// and copied from there once their number is known. `commit` renames the file, so it appears whole; without
/// a commit nothing is left. The writer replaces only a file that a TokenWriter wrote.
class TokenWriter {
  public:
    /// `max_vocab_size` limits the vocabulary of `commit` and sets the width of spooled tokens.
    TokenWriter(std::filesystem::path path, int64_t max_vocab_size);

    /// Buffers tokens; the buffer is written to the spool once it has 1 MiB. REQUIRES: tokens <
    /// max_vocab_size.
    void append(std::span<const uint32_t> tokens);

    /// Tokens appended so far.
    int64_t size() const { return size_; }

    /// Throws UserError if there are no tokens. REQUIRES: every token < info.vocab_size <= max_vocab_size.
    void commit(const TokenInfo& info);

  private:
    void flush();
    int64_t create_dataset(const TokenInfo& info) const;
    void copy_spool(int64_t offset, int64_t token_bytes);

    std::filesystem::path path_;
    int64_t max_vocab_size_, spool_token_bytes_;
    PartialFile file_;
    RawFile spool_;
    int64_t spool_bytes_ = 0;
    std::vector<uint32_t> buffer_;
    int64_t size_ = 0;
};

}  // namespace argosy::data
