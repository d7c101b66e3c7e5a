// Renames and removes later steps after a run went back to an earlier step. Only rank 0 does it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/step_folder.h"

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

}  // namespace argosy::resume
