// Whether a conversion may write somewhere.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/partial_folder.h"

namespace argosy::interop {

/// UserError where `path` is the model found at `source`, or would lie in its folder.
void refuse_inside(const std::filesystem::path& path, const std::filesystem::path& source);

/// UserError where something is at `path` and is not to be replaced, or is no model and so never is (a folder
/// of other things must not go by a slip); where the folder above does not exist; and where `source` lies in
/// it.
void check_output(const std::filesystem::path& path, checkpoint::Replace replace,
                  const std::filesystem::path& source);

/// UserError where a step's folder would bear the name of another step: readers go by it.
void check_step_name(const std::filesystem::path& path, int64_t step);

}  // namespace argosy::interop
