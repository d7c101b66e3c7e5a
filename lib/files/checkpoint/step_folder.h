// The folders of a run's checkpoints: their names, listing, creation, commit and removal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/partial_folder.h"
#include "checkpoint/table.h"

namespace argosy::checkpoint {

/// The file of a step that holds its manifest.
inline constexpr const char* kManifestName = "checkpoint.h5";

/// "step-00000100".
std::string step_name(int64_t step);

/// The step of a name "step-N"; none for any other name.
std::optional<int64_t> parse_step_name(const std::string& name);

/// The path of the whole step: `folder/step-N`, or the replaced folder (checkpoint/partial_folder.h) if a
/// save was killed while it replaced the step.
std::filesystem::path step_path(const std::filesystem::path& folder, int64_t step);

/// The steps with a whole folder in `folder`, ascending. Empty if `folder` is missing.
std::vector<int64_t> whole_steps(const std::filesystem::path& folder);

/// Removes the remains of killed saves: partial folders (also `step-N.replaced.partial`), and replaced
/// folders whose successor is in place. REQUIRES: no save is under way in `folder`.
void remove_remains(const std::filesystem::path& folder);

/// Removes the remains of killed saves in `folder`, makes `folder/step-N.partial` with the empty folders that
/// the shards of `num_writers` need, and returns its path. REQUIRES: no other save is under way in `folder`.
std::filesystem::path start_step(const std::filesystem::path& folder, int64_t step, int num_writers);

/// Commits a step: reads the shards' user blocks, writes the manifest, opens the step as a reader does,
/// fsyncs and renames the folder. An existing step of the same number is replaced. UserError if a shard is
/// missing, or of another save or plan. After an error the caller removes the partial folder. REQUIRES: every
/// shard is finished; `nonce` and `plan` are those of the writers.
void commit_step(const std::filesystem::path& folder, const Description& description, const Hash& nonce,
                 const SavePlan& plan, const std::vector<Asset>& assets);

struct Retention {
    int64_t keep_latest = 0;  // 0: all
    int64_t keep_every = 0;   // steps that are multiples of this number stay; 0: none
};
/// Whether `keep_every` keeps this step.
bool is_milestone(int64_t step, const Retention& retention);

/// The steps to remove, oldest first. The last step always stays. REQUIRES: `steps` is ascending.
std::vector<int64_t> steps_to_remove(const std::vector<int64_t>& steps, const Retention& retention);

/// Removes the steps that `retention` does not keep. Never throws: failures are logged.
void remove_old_steps(const std::filesystem::path& folder, const Retention& retention) noexcept;

}  // namespace argosy::checkpoint
