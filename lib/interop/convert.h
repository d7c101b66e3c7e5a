// Converts a model from one form to another, and compares the result with its source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "h5/dataset.h"
#include "interop/model_source.h"
#include "interop/transfer.h"

namespace argosy::interop {

struct ConvertOptions {
    Form to = Form::Sharded;
    Content content = Content::Everything;
    std::optional<ElementType> type = {};     // of the weights; none: the source's own
    int num_shards = 0;                       // of a sharded checkpoint; 0: as many as the source has, else 1
    int64_t most_file_bytes = 5'000'000'000;  // of Hugging Face's files, as transformers splits
};

/// The tensors of the result. Hugging Face's form holds only the model.
std::vector<Transfer> plan(const ModelSource& source, const ConvertOptions& options);

/// Writes the result at `partial`, where nothing exists yet, and returns its path: `partial` or, for a step,
/// a folder inside. The result is durable when this returns. UserError if the source's bytes fail their
/// checks; after an error the caller removes what is at `partial`.
std::filesystem::path convert(const ModelSource& source, const std::vector<Transfer>& transfers,
                              const ConvertOptions& options, const std::filesystem::path& partial,
                              const TransferOptions& transfer_options);

// The output of a conversion, one class per form. A target is laid out when it is constructed, accepts the
// tensors in any order (each tensor's bytes in sequence), and is complete and durable after finish().

class Target {
  public:
    virtual ~Target() = default;

    /// Appends bytes to tensor `transfer`. Different threads may append to different tensors at the same
    /// time.
    virtual void append(size_t transfer, std::span<const std::byte> bytes) = 0;

    /// Returns the path of the result. REQUIRES: every tensor has all its bytes.
    virtual std::filesystem::path finish() = 0;
};

struct TargetRequest {
    const ModelSource& source;
    const std::vector<Transfer>& transfers;
    Content content = Content::Everything;
    std::filesystem::path partial;  // an unused path for a new file or folder
    int num_shards = 1;             // of a sharded checkpoint
    int64_t most_file_bytes = 0;    // limit for Hugging Face's files; a larger single tensor gets its own
                                    // file
};

std::unique_ptr<Target> make_sharded_target(const TargetRequest& request);
std::unique_ptr<Target> make_full_target(const TargetRequest& request);
std::unique_ptr<Target> make_hugging_face_target(const TargetRequest& request);

/// The description of a checkpoint that is converted from the source.
checkpoint::Description target_description(const TargetRequest& request);

// Reads the result of a conversion again and compares it with its source, element by element.

/// The differences, for people, each naming tensor, position, expected and found; empty if there are none.
/// The source's elements, converted as `transfers` requests, must equal the result bit for bit. The
/// checkpoint's description, its assets, and the result's own checks are compared too. UserError if the
/// source's own checks fail.
std::vector<std::string> differences(const ModelSource& source, const ModelSource& made,
                                     const std::vector<Transfer>& transfers,
                                     const TransferOptions& transfer_options);

/// The faults that a checkpoint's checks find. Compares all of them, read by several threads.
std::vector<std::string> faults(const checkpoint::Checkpoint& checkpoint, int num_threads);

}  // namespace argosy::interop
