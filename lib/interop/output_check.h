// Checks whether a conversion may write to a path.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/partial_folder.h"
#include "interop/model_source.h"

namespace argosy::interop {

/// UserError if `path` is the model at `source`, or inside its folder.
void refuse_inside(const std::filesystem::path& path, const std::filesystem::path& source);

/// Checks whether a conversion to `form` may write at `path`. UserError if something exists there and
/// `replace` is No, or no conversion wrote it; if the folder above does not exist; and if `source` is inside
/// what would be replaced.
void check_output(const std::filesystem::path& path, Form form, checkpoint::Replace replace,
                  const std::filesystem::path& source);

/// UserError if a step's folder would have the name of another step, because readers rely on the name.
void check_step_name(const std::filesystem::path& path, int64_t step);

}  // namespace argosy::interop
