// Writes a folder that torch.distributed.checkpoint loads: `__0_0.distcp`, `__0_1.distcp` and so on, and
// `.metadata`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace argosy::pytorch {

/// A small object: None, bool, int, float, str, list, tuple or dict with text keys.
struct Object;
using ObjectList = std::vector<Object>;
struct ObjectTuple {
    ObjectList items;
};
using ObjectDict = std::vector<std::pair<std::string, Object>>;
struct Object {
    std::variant<std::monostate, bool, int64_t, double, std::string, ObjectList, ObjectTuple, ObjectDict>
        value;
};

class DistributedCheckpointWriter {
  public:
    struct Options {
        std::filesystem::path folder;  // an empty folder, which the caller publishes when it is whole
        std::vector<checkpoint::TensorInfo> tensors;
        std::map<std::string, Object> objects;
        int64_t max_file_bytes = 0;  // a file has more only if a single tensor has
    };

    /// Lays out the files and writes all of them but the elements of the tensors.
    explicit DistributedCheckpointWriter(Options options);
    ~DistributedCheckpointWriter();

    /// Writes bytes of tensor `index`, starting at its byte `from`. Each byte is written once, in any order.
    /// Threads may write at the same time.
    void write(size_t index, int64_t from, std::span<const std::byte> bytes);

    /// Writes `.metadata` last and makes everything durable. REQUIRES: every tensor has all its bytes.
    void finish();

  private:
    struct Contents;
    std::unique_ptr<Contents> contents_;
};

}  // namespace argosy::pytorch
