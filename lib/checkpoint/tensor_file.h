// Writes the files of a checkpoint. HDF5 creates a file with all its bytes allocated and closes the file.
// Afterwards all bytes are written by offset, without HDF5.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/raw_file.h"
#include "checkpoint/hash.h"
#include "checkpoint/plan.h"
#include "checkpoint/table.h"
#include "checkpoint/table_check.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint/user_block.h"
#include "h5/file.h"

namespace argosy::checkpoint {

/// A file with slabs: a shard or a full file. Any thread may call append(). Only shard() and full() call
/// HDF5.
class TensorFile {
  public:
    /// Makes the shard of writer `writer` in the step's folder `step`, which start_step() returned. The shard
    /// holds the slabs slabs_of(plan, writer). REQUIRES: `nonce` and `plan` are the same for all shards of a
    /// save.
    static TensorFile shard(const std::filesystem::path& step, const Hash& nonce, const Plan& plan,
                            int writer);
    /// Makes a full file, whose slabs are whole tensors.
    static TensorFile full(const std::filesystem::path& path, const Description& description,
                           std::vector<TensorInfo> tensors, const std::vector<Asset>& assets);
    TensorFile(TensorFile&&) noexcept;
    ~TensorFile();

    /// Appends bytes to slab number `slab`, in the order of its elements. Different threads may append to
    /// different slabs at the same time.
    void append(size_t slab, std::span<const std::byte> bytes);

    /// Writes the table and the user block, and fsyncs. REQUIRES: every slab has all its bytes.
    void finish();

  private:
    class State;
    explicit TensorFile(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

// Private to this module: what all kinds of files have in common while they are written.

class OutputFile {
  public:
    /// Makes the datasets and returns the table's text. The text has its final length; its hashes are not
    /// final.
    using LayOut = std::function<std::string(h5::File&)>;

    OutputFile(const std::filesystem::path& path, FileKind kind, const LayOut& lay_out);

    const RawFile& file() const { return file_; }
    int64_t size_bytes() const { return block_.num_bytes; }

    /// Writes the table and the user block, and fsyncs. `checked`: the byte ranges whose checks are in the
    /// table. `set`: the save that a shard belongs to; other files have none.
    void finish(const std::string& table, std::vector<ByteRange> checked,
                const std::optional<Hash>& set = {});

  private:
    UserBlock block_;
    RawFile file_;
};

/// Makes a dataset and returns the offset of its bytes. For a dataset without elements, returns the first
/// possible offset.
int64_t place_dataset(h5::File& file, const std::string& name, ElementType type,
                      std::span<const int64_t> shape);

/// Makes the datasets `assets/<name>`. The hashes in the result are final; write_assets() writes the bytes.
std::vector<StoredAsset> place_assets(h5::File& file, const std::vector<Asset>& assets);
void write_assets(const OutputFile& file, const std::vector<StoredAsset>& places,
                  const std::vector<Asset>& assets);

inline constexpr const char* kManifestName = "checkpoint.h5";

/// Writes and fsyncs a step's manifest, with a view of every tensor over the shards. REQUIRES: `manifest` has
/// a plan, and is complete except for its assets.
void write_manifest(const std::filesystem::path& path, Manifest manifest, const std::vector<Asset>& assets);

}  // namespace argosy::checkpoint
