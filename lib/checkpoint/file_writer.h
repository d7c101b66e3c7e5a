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
#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"

namespace argosy::checkpoint {

/// A slab to store in the file. Slabs without elements are left out.
struct Piece {
    TensorInfo tensor;
    layout::Slab slab;
    int64_t num_bytes() const { return slab.num_elements() * h5::size_bytes(tensor.type); }
};

struct Asset {
    std::string name;
    std::string bytes;
};

class FileWriter {
  public:
    /// A shard of the save `set`, the identifier that all shards of one save share.
    static FileWriter shard(const std::filesystem::path& path, const Hash& set, std::vector<Piece> pieces);
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

/// "shard-00003-of-00008.h5".
std::string shard_name(int writer, int num_writers);

}  // namespace argosy::checkpoint
