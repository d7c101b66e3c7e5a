// The lines of an earlier run in a file with one JSON object per step, such as metrics.jsonl. A run that
// resumes from a checkpoint repeats some steps: their old lines are moved to another file. Another run in the
// same folder appends its lines and logs a warning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace argosy::observe {

/// The step of the last line that has a step; none if there is no file, or no such line in its last mebibyte.
std::optional<int64_t> last_step(const std::filesystem::path& metrics_file);

/// Moves the lines after the last line of `step` or of an earlier step to the end of `file`.aside, and logs
/// the move: a run that resumes after `step` writes the later steps again. If a killed process left an
/// incomplete last line, the whole values of the line stay if they are of `step` or of an earlier step; else
/// the line moves too. Throws RunError if a file cannot be written.
void set_aside_steps_after(int64_t step, const std::filesystem::path& file);

/// Logs a warning if a run that resumes after its step `last_own_step` finds no lines of its last steps.
void log_missing_steps(const std::filesystem::path& metrics_file, int64_t last_step, int64_t last_own_step);

/// Logs how a run that begins with `first_step` continues a file whose last line has `last_step`. Logs a
/// warning if the lines must come from another run (`first_step` is 1, or steps are missing between),
/// information if steps repeat, and nothing if `first_step` directly follows.
void log_continuation(const std::filesystem::path& metrics_file, int64_t last_step, int64_t first_step);

}  // namespace argosy::observe
