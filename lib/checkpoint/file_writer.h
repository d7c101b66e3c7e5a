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
#include "checkpoint/plan.h"
#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"

namespace argosy::checkpoint {

struct Asset {
    std::string name;
    std::string bytes;
};

class TensorFile {
  public:
    /// The shard of writer `writer` in the step's folder `step`, which start_step() made, with the slabs
    /// slabs_of(plan, writer). `nonce` and `plan` are the same for all shards of one save.
    static TensorFile shard(const std::filesystem::path& step, const Hash& nonce, const Plan& plan,
                            int writer);
    /// A full file, with whole tensors.
    static TensorFile full(const std::filesystem::path& path, const Description& description,
                           std::vector<TensorInfo> tensors, const std::vector<Asset>& assets);
    TensorFile(TensorFile&&) noexcept;
    ~TensorFile();

    /// Appends bytes to the slab of this number, in the order of its elements. Different threads may append
    /// to different slabs at the same time.
    void append(size_t slab, std::span<const std::byte> bytes);

    /// Writes table and user block, and fsyncs. REQUIRES: every slab has all its bytes.
    void finish();

  private:
    class State;
    explicit TensorFile(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace argosy::checkpoint
