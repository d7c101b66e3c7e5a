// Work on the folders of saved steps. After a run has gone back to an earlier step, its later steps are set
// aside, and later removed. A step can be exported as a Hugging Face folder, which other programs read. Only
// rank 0 calls these functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "checkpoint/step_folder.h"
#include "config/choices.h"

namespace argosy::resume {

/// Sets the steps after `step` aside: adds the suffix ".aside" to their names, durably. These steps belong to
/// an abandoned continuation, or are damaged, and the next start would otherwise resume from them. Logs each
/// renaming and any failure; never throws. Returns false if some steps could not be renamed.
bool set_aside_later_steps(const std::filesystem::path& folder, int64_t step) noexcept;

/// Removes the steps set aside whose number is at most `step`. Keeps milestones of `retention`, and
/// everything if `retention` keeps all steps. Never throws. REQUIRES: `step` is committed, because until then
/// the steps set aside allow a return to the old continuation.
void remove_steps_set_aside(const std::filesystem::path& folder, int64_t step,
                            const checkpoint::Retention& retention) noexcept;

/// Throws UserError if the path `place` has something that no export or conversion wrote
/// (interop/conversion_folder.h).
void require_export_place(const std::filesystem::path& place);

/// Writes the weights of a step's folder as a Hugging Face folder at the path `place`, whole or not at all.
/// The files of an earlier export are replaced; the user's own files in that folder stay. `type` is the
/// element type of the exported weights; unset keeps the saved type. Throws UserError if the step is not
/// intact or require_export_place() throws.
void write_hugging_face(const std::filesystem::path& step, const std::filesystem::path& place,
                        std::optional<config::Precision> type);

}  // namespace argosy::resume
