// Writes one file of a checkpoint: a shard or a full file. The constructor lays it out through HDF5 with all
// bytes allocated. After that, append() writes bytes with pwrite, from any thread; HDF5 is called again only
// by finish().
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/hash.h"
#include "checkpoint/placement.h"
#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"

namespace argosy::checkpoint {

struct Asset {
    std::string name;
    std::string bytes;
};

class FileWriter {
  public:
    /// The shard of writer `writer` in the step's folder `step`, which start_step() made. The shard has
    /// the pieces pieces_of(plan, writer). `nonce` and `plan` are the same for all shards of one save.
    static FileWriter shard(const std::filesystem::path& step, const Hash& nonce, const Plan& plan,
                            int writer);
    /// A full file, with whole tensors.
    static FileWriter full(const std::filesystem::path& path, const Description& description,
                           std::vector<TensorInfo> tensors, const std::vector<Asset>& assets);
    FileWriter(FileWriter&&) noexcept;
    ~FileWriter();

    /// Appends bytes to piece `piece`. Different threads may append to different pieces at the same time.
    void append(size_t piece, std::span<const std::byte> bytes);

    /// Writes table and user block, and fsyncs. REQUIRES: every piece has all its bytes.
    void finish();

  private:
    class State;
    explicit FileWriter(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace argosy::checkpoint
