// Private to this module: the files of an open checkpoint.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_bytes.h"

namespace argosy::checkpoint {

struct Checkpoint::Files {
    explicit Files(const std::filesystem::path& path) : own(path) {}

    StoredBytes own;                                  // the manifest, or the full file
    std::unordered_map<std::string, size_t> tensors;  // index in the manifest by name

    /// Opens the shard at the first call. UserError if it is missing, torn or not the one that was saved. Any
    /// thread.
    const StoredBytes& open(const std::vector<StoredFile>& files, int file);

  private:
    std::mutex mutex_;
    std::unordered_map<int, StoredBytes> shards_;
};

}  // namespace argosy::checkpoint
