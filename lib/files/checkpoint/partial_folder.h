// A file or folder that appears under its name whole or not at all: it is made as X.partial beside its final
// path X and then renamed. A path has one writer at a time: a second PartialFolder for the path is refused.
#pragma once

#include <filesystem>

#include "base/output.h"

namespace argosy::checkpoint {

/// Whether an existing file or folder is replaced.
enum class Replace { No, Yes };

class PartialFolder {
  public:
    /// Makes the folders above `place`, which is the final path. If an earlier attempt was interrupted,
    /// restores the old folder that it moved aside, and removes its other remains. Afterwards path() does not
    /// exist; the owner makes a folder or a file there. UserError if `place` cannot be written, or if another
    /// process holds a PartialFolder for it.
    explicit PartialFolder(const std::filesystem::path& place);
    /// Removes path(), if it still exists.
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

/// "X.replaced": the temporary path of the old folder X while it is replaced, on file systems that cannot
/// exchange two names.
std::filesystem::path replaced_path(const std::filesystem::path& place);

/// fsyncs a file, or a folder with all its contents.
void sync_tree(const std::filesystem::path& path);

/// Renames `partial` to `place`, fsyncs their common folder, and removes the old contents of `place`. If the
/// file system can exchange two names, the old or the new contents are at `place` at every moment. UserError
/// if `place` exists and `replace` is No. REQUIRES: `partial` is on disk (sync_tree).
void publish(const std::filesystem::path& partial, const std::filesystem::path& place, Replace replace);

/// `publish` calls this function on file systems that cannot exchange two names, such as NFS. Between two
/// renames, an old folder is at `replaced_path(place)` and nothing is at `place`.
void replace_in_order(const std::filesystem::path& partial, const std::filesystem::path& place);

/// Removes a file, or a folder with its contents. Never throws: failures are logged. A folder X is first
/// renamed to X.partial, so that an interrupted removal leaves nothing that looks whole.
void remove_quietly(const std::filesystem::path& path) noexcept;

}  // namespace argosy::checkpoint
