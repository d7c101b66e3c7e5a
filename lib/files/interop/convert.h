// Converts a model from one form to another, and compares the result with its source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/element_type.h"
#include "checkpoint/checkpoint.h"
#include "interop/conversion.h"
#include "interop/model_source.h"

namespace argosy::interop {

struct ConvertOptions {
    Form to = Form::Sharded;
    Content content = Content::Everything;
    std::optional<ElementType> type = {};  // element type of the weights; none: as in the source
    int num_shards = 0;  // of a sharded checkpoint; 0: as in the source, or 1 if the source is not sharded
    int64_t max_file_bytes = 5'000'000'000;  // limit of a Hugging Face file, as in transformers
};

/// The tensors of the result. A Hugging Face folder holds only the model.
std::vector<TensorConversion> plan(const ModelSource& source, const ConvertOptions& options);

/// Writes the result at `partial`, where nothing exists yet. Returns the path of the result: `partial`
/// itself, or the folder of a step inside. The result is durable when convert() returns. UserError if the
/// source's bytes fail their checks. After an error the caller removes what is at `partial`.
std::filesystem::path convert(const ModelSource& source, const std::vector<TensorConversion>& conversions,
                              const ConvertOptions& options, const std::filesystem::path& partial,
                              const StreamOptions& stream_options);

// Reads the result of a conversion again and compares it with its source, element by element.

/// Returns one line for people for each difference, which names the tensor. The result must equal the
/// source's elements, converted as `conversions` requests, bit for bit, and the source's weights must be
/// finite. Also compares the checkpoint's description and assets, and verifies the result's checks. UserError
/// if the source's checks fail.
std::vector<std::string> differences(const ModelSource& source, const ModelSource& result,
                                     const std::vector<TensorConversion>& conversions,
                                     const StreamOptions& stream_options);

/// Verifies all checks of a checkpoint with `num_threads` threads and returns the faults.
std::vector<std::string> faults(const checkpoint::Checkpoint& checkpoint, int num_threads);

}  // namespace argosy::interop
