// What a model's files hold, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/model_source.h"

namespace argosy::interop {

struct Inspection {
    const ModelSource& source;
    /// What comparing all checks found, where that was done; a Hugging Face folder has none.
    std::optional<std::vector<std::string>> faults = {};
};

/// Form, step, mesh, sizes, files, and a line for each tensor: type, shape, bytes and check.
std::string inspection_text(const Inspection& inspection);

/// The same as one JSON object, with every slab of every tensor.
std::string inspection_json(const Inspection& inspection);

}  // namespace argosy::interop
