// What rank 0 does to the folder of a run's checkpoints beside saving.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/step_folder.h"

namespace argosy::train {

/// Gives the steps after `step` the suffix ".aside", durably. They are of another continuation, or torn, and
/// would else be what the next start resumes from. Says on the log what it did or could not do, and never
/// throws; false where some are left.
bool set_aside_later_steps(const std::filesystem::path& folder, int64_t step) noexcept;

/// Removes those that the run has passed: of a number up to `step`, which is whole. Until then they are the
/// way back; milestones of `retention` stay, and all where it keeps all. Never throws.
void remove_passed_asides(const std::filesystem::path& folder, int64_t step,
                          const checkpoint::Retention& retention) noexcept;

}  // namespace argosy::train
