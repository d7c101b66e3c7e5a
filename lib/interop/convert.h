// One form of a model into another.
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
    std::optional<h5::ElementType> type = {};  // of the weights; nothing: the source's own
    int num_shards = 0;                       // of a sharded checkpoint; 0: as many as the source has, else 1
    int64_t most_file_bytes = 5'000'000'000;  // of Hugging Face's files, as transformers splits
};

/// The tensors that come out. Hugging Face's form is the model alone.
std::vector<Transfer> plan(const ModelSource& source, const ConvertOptions& options);

/// Makes it at `partial`, where nothing is yet, and returns where it lies: there or, a step's folder, in
/// there. All of it is on disk then. UserError where the source's bytes are not what was saved; after an
/// error whoever calls removes what is at `partial`.
std::filesystem::path convert(const ModelSource& source, const std::vector<Transfer>& transfers,
                              const ConvertOptions& options, const std::filesystem::path& partial,
                              const Pace& pace);

}  // namespace argosy::interop
