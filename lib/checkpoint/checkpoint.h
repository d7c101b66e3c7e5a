// A checkpoint opened for reading: a step's folder or a full file. Opening reads only the manifest; a shard
// is opened, and its table of slabs read, when its bytes are first read. The
// manifest's plan says which shards hold a slab.
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
    struct Files;  // private to this module

    /// UserError, naming file, expected and found, if manifest or user block are torn, of a newer major
    /// version, or not of this format, or if the folder's name is that of another step.
    explicit Checkpoint(const std::filesystem::path& path);
    ~Checkpoint() override;

    const std::vector<TensorInfo>& tensors() const override { return tensors_; }

    /// Reads only the bytes that the slab needs; where rows of a cut are less than a page apart, it also
    /// reads the bytes between them. A stored slab that is one run in `out` is compared with its check.
    void read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const override;
    const std::string& place() const override { return place_; }

    /// The slabs of a tensor with their checks. Opens every shard that holds one. UserError as read().
    /// REQUIRES: `tensor` is one of tensors().
    std::vector<StoredSlab> slabs(const TensorInfo& tensor) const;

    /// How many slabs() returns; opens nothing.
    int64_t num_slabs(const TensorInfo& tensor) const;

    const Manifest& manifest() const { return manifest_; }
    const Description& description() const { return manifest_.description; }
    /// UserError if there is no asset of that name, or it is torn.
    std::string asset(const std::string& name) const;

    /// Reads part `part` of `num_parts` of the checkpoint's bytes and compares every check, so that several
    /// ranks or threads can share the work. Returns one message per fault, naming file, tensor, expected and
    /// found; empty: no fault. Sets `*unreadable`, if given, where reading itself failed: such bytes may be
    /// intact.
    std::vector<std::string> faults(int part = 0, int num_parts = 1, bool* unreadable = nullptr) const;

    /// The subset of `faults` that opening each file finds: files that are missing, cut, or of another save.
    /// Torn bytes within a file are not found.
    std::vector<std::string> file_faults(int part = 0, int num_parts = 1, bool* unreadable = nullptr) const;

    /// Bytes of tensors that read() has fetched so far.
    int64_t bytes_read() const { return bytes_read_; }

  private:
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
