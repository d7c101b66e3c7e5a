// Private to this module: a file of a checkpoint opened for reading, with its user block verified.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/raw_file.h"
#include "checkpoint/table_check.h"
#include "checkpoint/user_block.h"

namespace argosy::checkpoint {

class StoredBytes {
  public:
    /// UserError if the file is missing, not of this format, or of another length than its user block has.
    explicit StoredBytes(const std::filesystem::path& path);

    const UserBlock& block() const { return block_; }
    const RawFile& file() const { return file_; }
    std::string place() const { return file_.path().string(); }

    /// The table's text. UserError if it does not match its check.
    std::string table() const;

    ByteRange table_range() const { return {block_.table_at, block_.table_bytes}; }

  private:
    RawFile file_;
    UserBlock block_;
};

/// The hash of several ranges of a file, concatenated, read through a small buffer.
Hash hash_of(const RawFile& file, std::span<const ByteRange> ranges);

}  // namespace argosy::checkpoint
