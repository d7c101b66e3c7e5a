// Private to this room: the files of an open checkpoint, and the slabs in each.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/input_file.h"

namespace argosy::checkpoint {

struct Checkpoint::Files {
    /// `place`: the path of the manifest, or of the full file.
    explicit Files(std::filesystem::path place) : path(std::move(place)) {}

    /// The place of a slab in a file. `tensor` is the number of the slab's tensor in tensors().
    struct LocatedSlab {
        size_t tensor = 0;
        int64_t at = 0;
        Hash hash;
        bool verified = false;  // read whole by this process, and found to match `hash`
    };

    std::filesystem::path path;
    std::unordered_map<std::string, size_t> tensors;  // name -> number in tensors()

    /// The manifest, or the full file, which is opened at the first call. UserError as in open().
    const InputFile& own();

    /// Opens a shard at the first call for it. UserError if the shard is missing, damaged, or not the one
    /// that was saved. Any thread may call this.
    const InputFile& open(const Manifest& manifest, int file);

    /// The slabs in a shard's own table, in the order of their tensors. The table is read at the first call.
    /// UserError as in open(), or if the table is damaged or has other slabs than the plan. Any thread may
    /// call this. REQUIRES: the manifest has a plan.
    const std::vector<LocatedSlab>& slabs(const Manifest& manifest, int file);

    /// Notes that the slab of a tensor in this shard is verified. REQUIRES: slabs() has returned it.
    void note_verified(int file, size_t tensor);
    bool is_verified(const LocatedSlab& slab);

  private:
    struct Shard {
        InputFile bytes;
        std::optional<std::vector<LocatedSlab>> slabs;
    };
    Shard& shard(const Manifest& manifest, int file);

    std::mutex mutex_;
    std::optional<InputFile> own_;
    std::unordered_map<int, Shard> shards_;
};

}  // namespace argosy::checkpoint
