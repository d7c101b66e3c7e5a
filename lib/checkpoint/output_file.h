// Private to this module: a file of a checkpoint while it is written. HDF5 lays it out once and is closed;
// all bytes are then written by offset.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/raw_file.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/table_check.h"
#include "checkpoint/user_block.h"
#include "h5/file.h"

namespace argosy::checkpoint {

class OutputFile {
  public:
    /// Makes the datasets and returns the table's text. The text's length is final, its hashes are not yet.
    using LayOut = std::function<std::string(h5::File&)>;

    OutputFile(const std::filesystem::path& path, FileKind kind, const LayOut& lay_out);

    const RawFile& file() const { return file_; }
    int64_t size_bytes() const { return block_.num_bytes; }

    /// Writes the table and the user block, and fsyncs. `checked`: the ranges whose checks the table has.
    /// `set`: of a shard, the save that it belongs to.
    void finish(const std::string& table, std::vector<ByteRange> checked,
                const std::optional<Hash>& set = {});

  private:
    UserBlock block_;
    RawFile file_;
};

/// Makes a dataset and returns the offset of its bytes. A dataset without elements has no offset of its own
/// and gets the first possible one.
int64_t place_dataset(h5::File& file, const std::string& name, h5::ElementType type,
                      std::span<const int64_t> shape);

/// Makes the datasets `assets/<name>`; their hashes are final.
std::vector<StoredAsset> place_assets(h5::File& file, const std::vector<Asset>& assets);
void write_assets(const OutputFile& file, const std::vector<StoredAsset>& places,
                  const std::vector<Asset>& assets);

}  // namespace argosy::checkpoint
