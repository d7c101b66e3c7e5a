// Private to this room: what all files of a checkpoint have in common while they are written. HDF5 creates
// a file with all its bytes allocated and closes the file. Afterwards all bytes are written by offset,
// without HDF5.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/raw_file.h"
#include "checkpoint/hash.h"
#include "checkpoint/table.h"
#include "checkpoint/user_block.h"
#include "h5/file.h"

namespace argosy::checkpoint {

class OutputFile {
  public:
    /// Makes the datasets and returns the table's text. The text has its final length; its hashes are not
    /// final.
    using LayOut = std::function<std::string(h5::File&)>;

    OutputFile(const std::filesystem::path& path, FileKind kind, const LayOut& lay_out,
               std::string_view format = kFormat);

    const RawFile& file() const { return file_; }

    /// Writes the table and the user block, and fsyncs. `checked`: the byte ranges whose checks are in the
    /// table. `set`: the save that a shard belongs to; other files have none.
    void finish(const std::string& table, std::vector<ByteRange> checked,
                const std::optional<Hash>& set = {});

  private:
    UserBlock block_;
    RawFile file_;
};

/// Adds the attributes of the root group that FORMAT.md lists, for people who open the file with other tools.
void describe(h5::File& file, FileKind kind, std::string_view format, const Description& description);

/// Makes a dataset and returns the offset of its bytes. For a dataset without elements, returns the first
/// possible offset.
int64_t place_dataset(h5::File& file, const std::string& name, ElementType type,
                      std::span<const int64_t> shape);

/// Makes the datasets `assets/<name>`. The hashes in the result are final; write_assets() writes the bytes.
std::vector<StoredAsset> place_assets(h5::File& file, const std::vector<Asset>& assets);
void write_assets(const OutputFile& file, const std::vector<StoredAsset>& places,
                  const std::vector<Asset>& assets);

/// Writes and fsyncs a step's manifest, with a view of every tensor over the shards. REQUIRES: `manifest` has
/// a plan, and is complete except for its assets.
void write_manifest(const std::filesystem::path& path, Manifest manifest, const std::vector<Asset>& assets);

}  // namespace argosy::checkpoint
