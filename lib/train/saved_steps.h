// What rank 0 does to the folder of a run's checkpoints beside saving.
#pragma once

#include <cstdint>
#include <filesystem>

namespace argosy::train {

/// Gives the steps after `step` the suffix ".aside". They are of another continuation, or torn, and would
/// else be what the next start resumes from. Says on the log what it did or could not do, and never throws;
/// false where some are left.
bool set_aside_later_steps(const std::filesystem::path& folder, int64_t step) noexcept;

}  // namespace argosy::train
