// Exports a saved step as a Hugging Face folder, which other programs read.
#pragma once

#include <filesystem>
#include <optional>

#include "config/choices.h"

namespace argosy::resume {

/// UserError if the path `place` holds something that no export or conversion wrote
/// (interop/conversion_folder.h).
void require_export_place(const std::filesystem::path& place);

/// Writes the weights of a step's folder as a Hugging Face folder at the path `place`, whole or not at all.
/// An earlier export is replaced; a user's own files beside it stay. `type`: element type of the exported
/// weights; unset keeps the saved type. UserError if the step is not sound or require_export_place() throws.
void write_hugging_face(const std::filesystem::path& step, const std::filesystem::path& place,
                        std::optional<config::Precision> type);

}  // namespace argosy::resume
