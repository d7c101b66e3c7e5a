// What a metrics.jsonl holds from a run before, so that a run that only happens to have its folder does not
// mix with it in silence.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace argosy::observe {

/// The step of the last whole line; none where there is no file, or no step within its last megabyte.
std::optional<int64_t> last_step(const std::filesystem::path& metrics_file);

/// Logs how a run that begins with `first_step` stands to the lines before it, the last of which is of
/// `last_step`: a warning unless it can be the same run, restarted; nothing where it goes right on.
void log_continuation(const std::filesystem::path& metrics_file, int64_t last_step, int64_t first_step);

}  // namespace argosy::observe
