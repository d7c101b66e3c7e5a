// Lists the contents of a model's files, for people.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/model_source.h"

namespace argosy::interop {

struct Inspection {
    const ModelSource& source;
    /// The faults that the checks found; none if the checks were not verified and no shard is missing. A
    /// Hugging Face folder has no checks.
    std::optional<std::vector<std::string>> faults = {};
};

/// Text for people: form, step, mesh, sizes, files, and a line for each tensor with type, shape, bytes and
/// check.
std::string inspection_text(const Inspection& inspection);

}  // namespace argosy::interop
