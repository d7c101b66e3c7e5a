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

/// "step-00000100".
std::string step_name(int64_t step);

/// The step of a name "step-N"; none for any other name.
std::optional<int64_t> parse_step_name(const std::string& name);

/// The path of the whole step: `folder/step-N`, or, if a save was killed while replacing it, the replaced
/// folder (checkpoint/partial_folder.h).
std::filesystem::path step_path(const std::filesystem::path& folder, int64_t step);

/// The steps with a whole folder, ascending, found by listing `folder`. A missing folder has none.
std::vector<int64_t> whole_steps(const std::filesystem::path& folder);

/// Makes an empty `folder/step-N.partial`, the folders above it and those in it for the shards of
/// `num_writers`, returns it, and removes the remains of killed attempts in `folder`. One save at a time in a
/// folder.
std::filesystem::path start_step(const std::filesystem::path& folder, int64_t step, int num_writers);

/// Call it once every shard is finished, with the nonce and the plan of all writers: reads the shards' user
/// blocks, writes the manifest with its views, opens it as a reader does, fsyncs and renames. The step
/// replaces one of the same number. UserError if a shard is missing or of another save or plan. After an
/// error the caller removes the partial folder.
void commit_step(const std::filesystem::path& folder, const Description& description, const Hash& nonce,
                 const Plan& plan, const std::vector<Asset>& assets);

struct Retention {
    int64_t keep_latest = 0;  // 0: all
    int64_t keep_every = 0;   // multiples of this step number stay; 0: none
};
/// Whether `keep_every` keeps this step.
bool is_milestone(int64_t step, const Retention& retention);

/// The steps of `steps` (ascending) to remove, oldest first; never the last one.
std::vector<int64_t> superfluous(const std::vector<int64_t>& steps, const Retention& retention);

/// Removes these steps from `folder`. Never throws: failures are logged.
void remove_superfluous(const std::filesystem::path& folder, const Retention& retention) noexcept;

}  // namespace argosy::checkpoint
