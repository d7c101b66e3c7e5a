// Writes a token file (token_file.h, FORMAT.md). The constructor and commit() call HDF5, so they run on the
// one thread that h5/dataset.h requires.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/output.h"
#include "base/raw_file.h"
#include "data/token_file.h"
#include "h5/dataset.h"

namespace argosy::data {

/// A file without a name that collects numbers while their final place is not known yet.
template <class Number>
class Spool {
  public:
    /// `stored_bytes` of each number are kept: its low bytes. REQUIRES: `path` does not exist.
    Spool(const std::filesystem::path& path, int64_t stored_bytes)
        : file_(RawFile::create_nameless(path)), stored_bytes_(stored_bytes) {}

    /// Buffers numbers; the buffer is written once it has 1 MiB.
    void append(std::span<const Number> numbers);
    void flush();

    int64_t size() const { return size_; }
    int64_t stored_bytes() const { return stored_bytes_; }
    /// The bytes of numbers begin .. begin+count-1. REQUIRES: flush() was called after the last append().
    std::vector<std::byte> read(int64_t begin, int64_t count) const;

  private:
    RawFile file_;
    int64_t stored_bytes_;
    int64_t size_ = 0, written_ = 0;  // numbers
    std::vector<Number> buffer_;
};

/// Collects bits, eight to a byte, the first of them in the lowest bit.
class BitSpool {
  public:
    explicit BitSpool(const std::filesystem::path& path) : bytes_(path, 1) {}

    void append(std::span<const uint8_t> bits);
    /// Fills the last byte with zeros. No append() may follow.
    void flush();

    int64_t size() const { return size_; }
    int64_t num_ones() const { return num_ones_; }
    const Spool<uint8_t>& bytes() const { return bytes_; }

  private:
    Spool<uint8_t> bytes_;
    uint8_t last_ = 0;  // the byte that is not full
    int64_t size_ = 0, num_ones_ = 0;
};

/// Writes a token file of unknown length in bounded memory: tokens are first spooled into a nameless file,
/// and copied from there once their number is known. `commit` renames the file, so it appears whole; without
/// a commit nothing is left. The writer replaces only a file that a TokenWriter wrote. The same documents
/// make the same bytes.
class TokenWriter {
  public:
    /// `max_vocab_size` limits the vocabulary of `commit` and sets the width of spooled tokens.
    TokenWriter(std::filesystem::path path, int64_t max_vocab_size);

    /// `loss_mask` has a 1 or 0 for each token: whether it counts as a target. Either all documents with
    /// tokens have one, or none. REQUIRES: tokens < max_vocab_size.
    void append_document(std::span<const uint32_t> tokens, std::span<const uint8_t> loss_mask = {});

    /// Tokens and documents appended so far.
    int64_t size() const { return tokens_.size(); }
    int64_t num_documents() const { return documents_.size(); }
    /// The appended tokens that count as targets.
    int64_t counted_tokens() const { return has_loss_mask() ? mask_.num_ones() : size(); }

    /// Throws UserError if there are no tokens. REQUIRES: every token < info.vocab_size <= max_vocab_size.
    void commit(const TokenInfo& info);

  private:
    /// The offsets of the datasets in the file.
    struct Places {
        int64_t tokens = 0, documents = 0, loss_mask = 0, checksums = 0;
    };
    bool has_loss_mask() const { return mask_.size() > 0; }
    void describe(h5::Dataset& tokens, const TokenInfo& info) const;
    Places create_datasets(const TokenInfo& info, int64_t num_checksums) const;
    template <class Number>
    void copy(const Spool<Number>& spool, int64_t offset, int64_t element_bytes,
              std::vector<int64_t>& checksums);

    std::filesystem::path path_;
    int64_t max_vocab_size_;
    PartialFile file_;
    Spool<uint32_t> tokens_;
    Spool<int64_t> documents_;  // the position of each document's first token
    BitSpool mask_;             // empty without a loss mask
};

}  // namespace argosy::data
