// Private to this module: a file of a checkpoint opened for reading, its user block checked.
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
    /// UserError where the file is missing, none of ours, or not as long as its user block says.
    explicit StoredBytes(const std::filesystem::path& path);

    const UserBlock& block() const { return block_; }
    const RawFile& file() const { return file_; }
    std::string place() const { return file_.path().string(); }

    /// The table's text. UserError where it does not match its check.
    std::string table() const;

    ByteRange table_range() const { return {block_.table_at, block_.table_bytes}; }

  private:
    RawFile file_;
    UserBlock block_;
};

/// The hash of ranges of a file, one after the other, read through a small buffer.
Hash hash_of(const RawFile& file, std::span<const ByteRange> ranges);

}  // namespace argosy::checkpoint
