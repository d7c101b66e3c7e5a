// Writes a token file of unknown length in bounded memory: tokens are first spooled into a nameless file, and
// copied from there once their number is known. The file appears whole, by a rename in `commit`; without a
// commit nothing is left. The writer replaces only a file that a TokenWriter wrote. `commit` uses HDF5: one
// thread (see h5/dataset.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/partial_file.h"
#include "data/token_file.h"

namespace argosy::data {

class TokenWriter {
  public:
    /// `max_vocab_size` limits the vocabulary of `commit` and sets the width of spooled tokens.
    TokenWriter(std::filesystem::path path, int64_t max_vocab_size);

    /// Buffers tokens; the buffer is written to disk one megabyte at a time. REQUIRES: tokens <
    /// max_vocab_size.
    void append(std::span<const uint32_t> tokens);

    /// Tokens appended so far.
    int64_t size() const { return size_; }

    /// UserError when there are no tokens. REQUIRES: every token < info.vocab_size <= max_vocab_size.
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
