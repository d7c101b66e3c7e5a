// A checkpoint opened for reading: a step's folder or a full file. Opening reads the manifest alone; shards
// are opened when something of theirs is first read.
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
    /// UserError, naming file, expected and found, where manifest or user block are torn, of a newer major
    /// version, or none of ours.
    explicit Checkpoint(const std::filesystem::path& path);
    ~Checkpoint() override;

    const std::vector<TensorInfo>& tensors() const override { return tensors_; }

    /// Fetches what the slab needs and no more, but where the rows of a cut are less than a page apart what
    /// lies between them too. A stored slab that lies in one run in `out` is compared with its check on the
    /// way.
    void read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const override;
    const std::string& place() const override { return place_; }

    const Manifest& manifest() const { return manifest_; }
    const Description& description() const { return manifest_.description; }
    /// UserError where there is none of that name, or it is torn.
    std::string asset(const std::string& name) const;

    /// Reads part `part` of `num_parts` of the checkpoint's bytes and compares every check; several ranks or
    /// threads share the work. Returns what is wrong, for people, each naming file, tensor, expected and
    /// found; empty: sound. `unreadable`, where given, becomes true where the machine failed: what could not
    /// be read may be sound.
    std::vector<std::string> faults(int part = 0, int num_parts = 1, bool* unreadable = nullptr) const;

    /// Of all that, what opening each file shows: those that are missing, cut, or of another save. Torn bytes
    /// within a file it does not see.
    std::vector<std::string> file_faults(int part = 0, int num_parts = 1, bool* unreadable = nullptr) const;

    /// Bytes of tensors that read() fetched so far.
    int64_t bytes_read() const { return bytes_read_; }

  private:
    struct Files;
    std::string place_;
    Manifest manifest_;
    std::vector<TensorInfo> tensors_;
    std::unique_ptr<Files> files_;
    mutable std::atomic<int64_t> bytes_read_ = 0;
};

}  // namespace argosy::checkpoint
