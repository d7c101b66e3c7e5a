// A saved step in the form that others read.
#pragma once

#include <filesystem>
#include <optional>

#include "config/choices.h"

namespace argosy::train {

/// UserError where something lies at `place` that no export or conversion wrote
/// (interop/conversion_folder.h).
void require_export_place(const std::filesystem::path& place);

/// Writes the weights of a step's folder as a Hugging Face folder at `place`, whole or not at all. An earlier
/// export is replaced; a user's own files beside it stay. `type`: of the weights, if not as they are.
/// UserError where the step is not sound, and as of require_export_place.
void write_hugging_face(const std::filesystem::path& step, const std::filesystem::path& place,
                        std::optional<config::Precision> type);

}  // namespace argosy::train
