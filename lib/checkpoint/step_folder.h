// The folders of a run's checkpoints: names, which are there, how one becomes whole, which are removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/file_writer.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/table.h"

namespace argosy::checkpoint {

/// "step-00000100".
std::string step_name(int64_t step);

/// The step of that name; none for any other name.
std::optional<int64_t> parse_step_name(const std::string& name);

/// Where the whole step lies: `folder/step-N`, or the folder that it was about to replace
/// (checkpoint/partial_folder.h) where a save was killed in between.
std::filesystem::path step_path(const std::filesystem::path& folder, int64_t step);

/// Steps with a whole folder, ascending; found by looking. A folder that is not there holds none.
std::vector<int64_t> whole_steps(const std::filesystem::path& folder);

/// Makes an empty `folder/step-N.partial` and returns it, makes the folders above it, and removes what
/// attempts that were killed left in `folder`. One save at a time in a folder.
std::filesystem::path start_step(const std::filesystem::path& folder, int64_t step);

/// Once every shard is finished: reads their tables, writes the manifest with its views, fsyncs, renames. The
/// step replaces one of the same number. UserError where a shard is missing, foreign, or the slabs do not
/// cover a tensor exactly once. After an error the partial folder is the caller's to remove.
void commit_step(const std::filesystem::path& folder, const Description& description, const Hash& set,
                 int num_writers, const std::vector<Asset>& assets);

struct Retention {
    int64_t keep_latest = 0;  // 0: all
    int64_t keep_every = 0;   // steps that are multiples of it stay; 0: none
};
/// Whether a step stays for its number.
bool is_milestone(int64_t step, const Retention& retention);

/// Which of `steps` (ascending) are to go, oldest first; never the last.
std::vector<int64_t> superfluous(const std::vector<int64_t>& steps, const Retention& retention);

/// Removes them from `folder`. What cannot be removed is said on the log; it never throws.
void remove_superfluous(const std::filesystem::path& folder, const Retention& retention) noexcept;

}  // namespace argosy::checkpoint
