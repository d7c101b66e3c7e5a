// Whether a conversion may write somewhere.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/partial_folder.h"
#include "interop/model_source.h"

namespace argosy::interop {

/// UserError where `path` is the model found at `source`, or would lie in its folder.
void refuse_inside(const std::filesystem::path& path, const std::filesystem::path& source);

/// Whether a conversion to `form` may write at `path`. UserError where something is there and is not to be
/// replaced, or no conversion wrote it; where the folder above does not exist; and where `source` lies in
/// what would be replaced.
void check_output(const std::filesystem::path& path, Form form, checkpoint::Replace replace,
                  const std::filesystem::path& source);

/// UserError where a step's folder would bear the name of another step: readers go by it.
void check_step_name(const std::filesystem::path& path, int64_t step);

}  // namespace argosy::interop
