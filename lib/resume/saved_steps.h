// Work on the folders of saved steps: later steps are set aside and removed after a run went back to an
// earlier one, and a step is exported as a Hugging Face folder, which other programs read. Only rank 0 does
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "checkpoint/step_folder.h"
#include "config/choices.h"

namespace argosy::resume {

/// Renames the steps after `step` durably with the suffix ".aside". They belong to an abandoned continuation,
/// or are damaged, and the next start would otherwise resume from them. Logs what it did and what failed;
/// never throws. False if some steps could not be renamed.
bool set_aside_later_steps(const std::filesystem::path& folder, int64_t step) noexcept;

/// Removes the steps set aside whose number is at most `step`. REQUIRES: `step` is committed; until then the
/// steps set aside allow a return to the old continuation. Keeps milestones of `retention`, and everything if
/// `retention` keeps all steps. Never throws.
void remove_passed_asides(const std::filesystem::path& folder, int64_t step,
                          const checkpoint::Retention& retention) noexcept;

/// UserError if the path `place` holds something that no export or conversion wrote
/// (interop/conversion_folder.h).
void require_export_place(const std::filesystem::path& place);

/// Writes the weights of a step's folder as a Hugging Face folder at the path `place`, whole or not at all.
/// An earlier export is replaced; a user's own files beside it stay. `type`: element type of the exported
/// weights; unset keeps the saved type. UserError if the step is not sound or require_export_place() throws.
void write_hugging_face(const std::filesystem::path& step, const std::filesystem::path& place,
                        std::optional<config::Precision> type);

}  // namespace argosy::resume
