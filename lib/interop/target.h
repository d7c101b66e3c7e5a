// What a conversion writes, form by form. A target is laid out when it is made, takes its tensors' bytes in
// any order of the tensors, and is whole and durable once it is finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "interop/model_source.h"
#include "interop/transfer.h"

namespace argosy::interop {

class Target {
  public:
    virtual ~Target() = default;

    /// The next bytes of tensor `transfer`. From any thread, for different tensors.
    virtual void append(size_t transfer, std::span<const std::byte> bytes) = 0;

    /// Where it is. REQUIRES: every tensor got all its bytes.
    virtual std::filesystem::path finish() = 0;
};

struct TargetRequest {
    const ModelSource& source;
    const std::vector<Transfer>& transfers;
    Content content = Content::Everything;
    std::filesystem::path partial;  // free to be made a file or a folder
    int num_shards = 1;             // of a sharded one
    int64_t most_file_bytes = 0;    // of Hugging Face's files, but for one that holds a single larger tensor
};

std::unique_ptr<Target> make_sharded_target(const TargetRequest& request);
std::unique_ptr<Target> make_full_target(const TargetRequest& request);
std::unique_ptr<Target> make_hugging_face_target(const TargetRequest& request);

/// What a checkpoint that is made of the source says of itself.
checkpoint::Description target_description(const TargetRequest& request);

}  // namespace argosy::interop
