// A file or folder that appears under its name whole or not at all: it is made as X.partial beside its final
// path and renamed. Only one writer per path: a second PartialFolder for it is refused.
#pragma once

#include <filesystem>

#include "base/output.h"

namespace argosy::checkpoint {

/// Whether an existing file or folder is replaced.
enum class Replace { No, Yes };

class PartialFolder {
  public:
    /// Makes the folders above `place` (the final path), restores what an interrupted earlier attempt moved
    /// aside, and removes its other remains. Nothing is at path() afterwards: the owner makes a folder or a
    /// file there. UserError if the place cannot be written, or another process holds a PartialFolder for it.
    explicit PartialFolder(const std::filesystem::path& place);
    /// Removes what is at path(), unless it was published.
    ~PartialFolder();
    PartialFolder(const PartialFolder&) = delete;
    PartialFolder& operator=(const PartialFolder&) = delete;

    /// The path at which the owner makes the file or folder, until `publish` renames it.
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path place_, path_;
    OutputLock lock_;
};

/// "X" for "X/".
std::filesystem::path without_slash(const std::filesystem::path& path);

/// "X.partial" for "X" and for "X/".
std::filesystem::path partial_path(const std::filesystem::path& place);

/// "X.replaced": temporary path of the old folder while X replaces it, on file systems that cannot exchange
/// two names.
std::filesystem::path replaced_path(const std::filesystem::path& place);

/// Makes a folder and those above it, durably. UserError on failure.
void make_folders(const std::filesystem::path& folder);

/// fsyncs a file, or a folder with all its contents.
void sync_tree(const std::filesystem::path& path);

/// Renames `partial`, which is on disk already, to `place`, fsyncs their common folder, and removes the old
/// contents of `place`. At each moment the old or the new contents are at `place`. UserError if `place`
/// exists and `replace` is No.
void publish(const std::filesystem::path& partial, const std::filesystem::path& place, Replace replace);

/// The way of `publish` on file systems that cannot exchange two names (such as NFS): an old folder is at
/// `replaced_path(place)` for the moment between two renames.
void replace_in_order(const std::filesystem::path& partial, const std::filesystem::path& place);

/// Removes a file, or a folder with its contents. Never throws: failures are logged. A folder is renamed to
/// X.partial first, so that an interrupted removal leaves nothing that looks whole.
void remove_quietly(const std::filesystem::path& path) noexcept;

}  // namespace argosy::checkpoint
