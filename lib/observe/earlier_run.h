// What a file of lines by step, as metrics.jsonl, holds from a run before: a run that only happens to have
// its folder must not mix with it in silence, and one that goes on from a checkpoint writes some steps again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace argosy::observe {

/// The step of the last whole line; none where there is no file, or no step within its last megabyte.
std::optional<int64_t> last_step(const std::filesystem::path& metrics_file);

/// Moves the lines of steps after `step`, which a run that goes on there writes again, from the end of the
/// file to that of `file`.aside, and says so on the log. A last line that a killed process left unfinished
/// goes with them; lines before the last one of that step or an earlier one stay. Throws RunError where files
/// cannot be written.
void set_aside_steps_after(int64_t step, const std::filesystem::path& file);

/// Logs how a run that begins with `first_step` stands to the lines before it, the last of which is of
/// `last_step`: a warning unless it can be the same run, restarted; nothing where it goes right on.
void log_continuation(const std::filesystem::path& metrics_file, int64_t last_step, int64_t first_step);

}  // namespace argosy::observe
