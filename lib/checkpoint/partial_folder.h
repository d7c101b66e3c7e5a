// Something that appears under its name whole or not at all, a folder or a file: it is made as X.partial
// beside its place and renamed. One writer to a place at a time: a PartialFolder refuses a second one.
#pragma once

#include <filesystem>

#include "base/output_lock.h"

namespace argosy::checkpoint {

/// What is to happen where the place is taken.
enum class Replace { No, Yes };

class PartialFolder {
  public:
    /// Makes the folders above `place`, puts back what an earlier attempt had moved aside, and removes what
    /// that left. Nothing lies at path() after it: the owner makes a folder or a file there. UserError where
    /// the place cannot be written, or another process has one for it.
    explicit PartialFolder(const std::filesystem::path& place);
    /// Removes what lies at path(), unless it was published.
    ~PartialFolder();
    PartialFolder(const PartialFolder&) = delete;
    PartialFolder& operator=(const PartialFolder&) = delete;

    /// The path at which the owner makes it, until `publish` renames it.
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path place_, path_;
    OutputLock lock_;
};

/// "X" for "X/".
std::filesystem::path without_slash(const std::filesystem::path& path);

/// "X.partial" for "X" and for "X/".
std::filesystem::path partial_path(const std::filesystem::path& place);

/// "X.replaced": where the folder that X replaces lies for a moment, on file systems that cannot exchange two
/// names.
std::filesystem::path replaced_path(const std::filesystem::path& place);

/// Makes a folder and those above it, durably. UserError where it cannot be made.
void make_folders(const std::filesystem::path& folder);

/// fsyncs a file, or a folder with all that is in it.
void sync_tree(const std::filesystem::path& path);

/// Renames `partial`, which is on disk already, to `place`, and fsyncs the folder that both lie in; removes
/// what was at `place`. At each moment the old or the new one is at `place`. UserError where it is taken and
/// not to be replaced.
void publish(const std::filesystem::path& partial, const std::filesystem::path& place, Replace replace);

/// What `publish` does on file systems that cannot exchange two names (NFS is one): an old folder is at
/// `replaced_path(place)` for the moment between two renames.
void replace_in_order(const std::filesystem::path& partial, const std::filesystem::path& place);

/// Removes a file, or a folder with its contents; says on the log what it could not remove, and never throws.
/// A folder becomes X.partial first, so that one killed on the way leaves nothing that looks whole.
void remove_quietly(const std::filesystem::path& path) noexcept;

}  // namespace argosy::checkpoint
