// Private to this module: a file of a checkpoint opened for reading, with its user block verified, and reads
// of the slabs in it, compared with their checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/raw_file.h"
#include "checkpoint/table.h"
#include "checkpoint/table_check.h"
#include "checkpoint/user_block.h"
#include "layout/slab.h"

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

/// Reads the elements that `stored` and `wanted` have in common into `out`, which holds all of `wanted`;
/// returns the bytes fetched. The function makes few large reads: rows less than a page apart are read
/// through a small buffer, together with the bytes between them. REQUIRES: the slabs have elements in common.
int64_t read_common(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored,
                    const layout::Slab& wanted, std::span<std::byte> out);

/// A message if the found hash differs from the slab's check; empty if they agree.
std::string check_fault(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored,
                        const Hash& found);

}  // namespace argosy::checkpoint
