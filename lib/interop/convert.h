// Converts a model from one form to another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "h5/element_type.h"
#include "interop/model_source.h"
#include "interop/transfer.h"

namespace argosy::interop {

struct ConvertOptions {
    Form to = Form::Sharded;
    Content content = Content::Everything;
    std::optional<h5::ElementType> type = {};  // of the weights; none: the source's own
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

}  // namespace argosy::interop
