// Private to this room: reading a file of a checkpoint. The constructor verifies the file's user block;
// functions read slabs of the file and compare them with their checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/raw_file.h"
#include "checkpoint/table.h"
#include "checkpoint/user_block.h"
#include "layout/slab.h"

namespace argosy::checkpoint {

class InputFile {
  public:
    /// UserError if the file is missing, not of this format, or of another length than its user block says.
    explicit InputFile(const std::filesystem::path& path);

    const UserBlock& block() const { return block_; }
    const RawFile& file() const { return file_; }
    std::string place() const { return file_.path().string(); }

    /// The table's text. UserError if it does not match its check.
    std::string table() const;

    TableFile table_file() const {
        return {.num_bytes = block_.num_bytes, .table = {block_.table_at, block_.table_bytes}};
    }

  private:
    RawFile file_;
    UserBlock block_;
};

/// The hash of several ranges of a file, concatenated, read through a small buffer.
Hash hash_of(const RawFile& file, std::span<const ByteRange> ranges);

struct CommonRead {
    int64_t num_bytes = 0;  // read
    bool verified = false;  // all of the stored slab was read as one run, and matches its check
};

/// Reads the elements that `stored` and `wanted` have in common into `out`, the memory of all of `wanted`.
/// The function makes few large reads: rows that are less than a page apart
/// are read through a small buffer, together with the bytes between them. UserError if all of `stored` is
/// read as one run and does not match its check. REQUIRES: the slabs have elements in common.
CommonRead read_common(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored,
                       const layout::Slab& wanted, std::span<std::byte> out);

/// The message for a slab or an asset whose hash `found` differs from its check; empty if the two agree.
std::string fault_of(const RawFile& file, const TensorInfo& tensor, const StoredSlab& stored,
                     const Hash& found);
std::string fault_of(const RawFile& file, const StoredAsset& asset, const Hash& found);

/// UserError if a shard belongs to the save `found` instead of `expected`.
void check_save(const InputFile& shard, const Hash& found, const Hash& expected);

/// Reads the table of a shard. UserError if it is damaged, invalid, or of another save than `set`.
ShardTable read_shard_table(const InputFile& shard, const Hash& set);

}  // namespace argosy::checkpoint
