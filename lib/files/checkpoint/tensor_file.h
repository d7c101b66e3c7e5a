// Writes the slabs of a checkpoint into a shard or a full file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/hash.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"

namespace argosy::checkpoint {

/// Only shard() and full() call HDF5; any thread may call append().
class TensorFile {
  public:
    /// Makes the shard of writer `writer` in the step's folder `step`, which start_step() returned. The shard
    /// holds the slabs slabs_of(plan, writer). REQUIRES: `nonce` and `plan` are the same for all shards of a
    /// save.
    static TensorFile shard(const std::filesystem::path& step, const Hash& nonce, const SavePlan& plan,
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

}  // namespace argosy::checkpoint
