// A checkpoint opened for reading: a step's folder or a full file. The constructor reads only the manifest,
// whose plan says which shards hold a slab. A shard is opened, and its table of slabs read, when the first of
// its bytes are needed.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"

namespace argosy::checkpoint {

class Checkpoint : public TensorSource {
  public:
    struct Files;  // private to this room

    /// UserError if the manifest or the user block is damaged, or not of the format that this program reads,
    /// or if the folder's name is that of another step. The message names the file, and the expected and
    /// found values.
    explicit Checkpoint(const std::filesystem::path& path);

    /// The step at `path`, whose manifest another rank has read: `manifest` is to_json() of that. Opens no
    /// file.
    Checkpoint(const std::filesystem::path& path, const std::string& manifest);
    ~Checkpoint() override;

    const std::vector<TensorInfo>& tensors() const override { return tensors_; }

    /// Reads only the bytes that the slab needs, and the bytes between two rows that are less than a page
    /// apart. A stored slab is compared with its check if all of it is read and is one run in `out`.
    void read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const override;
    const std::string& place() const override { return place_; }

    /// The slabs of a tensor with their checks. Opens every shard that holds one of them. UserError as in
    /// read(). REQUIRES: `tensor` is one of tensors().
    std::vector<StoredSlab> slabs(const TensorInfo& tensor) const;

    /// The number of slabs that slabs() returns. Opens no shard.
    int64_t num_slabs(const TensorInfo& tensor) const;

    const Manifest& manifest() const { return manifest_; }
    const Description& description() const { return manifest_.description; }
    /// UserError if there is no asset of this name, or if the asset is damaged.
    std::string asset(const std::string& name) const;

    /// Reads all bytes of every `num_parts`-th shard, from shard `part` on, and compares every check in them;
    /// several ranks or threads can share the work, each with a part. Part 0 has the manifest or the full
    /// file, too. A slab of a shard that read() has already compared is not read again. Returns one message
    /// per fault, which names the file, the tensor, and the expected and found values. If reading itself
    /// fails, sets
    /// `*unreadable` (if given) to true: the bytes may be intact.
    std::vector<std::string> faults(int part = 0, int num_parts = 1, bool* unreadable = nullptr) const;

    /// The subset of `faults` that opening the shards finds: shards that are missing, truncated, or of
    /// another save, or whose user block is damaged. Other damaged bytes are not found.
    std::vector<std::string> file_faults(int part = 0, int num_parts = 1, bool* unreadable = nullptr) const;

    /// Bytes of tensors that read() has fetched so far.
    int64_t bytes_read() const { return bytes_read_; }

  private:
    void index_tensors();
    size_t index_of(const TensorInfo& tensor) const;
    void for_each_stored(size_t tensor, const layout::Slab& wanted,
                         const std::function<void(const StoredSlab&)>& visit) const;

    std::string place_;
    Manifest manifest_;
    std::vector<TensorInfo> tensors_;
    std::unique_ptr<Files> files_;
    mutable std::atomic<int64_t> bytes_read_ = 0;
};

}  // namespace argosy::checkpoint
