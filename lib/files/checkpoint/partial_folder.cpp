#include "checkpoint/partial_folder.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/raw_file.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartial = ".partial";

fs::path with_suffix(const fs::path& path, const char* suffix) { return without_slash(path) += suffix; }

[[noreturn]] void fail_rename(const fs::path& from, const fs::path& to, int reason) {
    throw RunError("cannot rename {} to {}: {}", from.string(), to.string(), std::strerror(reason));
}

bool is_there(const fs::path& path) { return fs::symlink_status(path).type() != fs::file_type::not_found; }

/// Whether the error says that the file system does not support this kind of rename.
bool unsupported(int reason) { return reason == EINVAL || reason == ENOSYS || reason == ENOTSUP; }

/// Returns 0 or the errno.
int rename_with(const fs::path& from, const fs::path& to, unsigned flags) {
    return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0 ? 0 : errno;
}

[[noreturn]] void fail_taken(const fs::path& place) {
    throw UserError("{} exists already; remove it or name another place", place.string());
}

void rename_to_free(const fs::path& from, const fs::path& place) {
    int reason = rename_with(from, place, RENAME_NOREPLACE);
    if (unsupported(reason)) {
        if (is_there(place)) fail_taken(place);
        reason = rename_with(from, place, 0);
    }
    if (reason == EEXIST || reason == ENOTEMPTY) fail_taken(place);
    if (reason != 0) fail_rename(from, place, reason);
}

void rename_to_taken(const fs::path& from, const fs::path& place) {
    const int reason = rename_with(from, place, RENAME_EXCHANGE);
    if (unsupported(reason)) return replace_in_order(from, place);
    if (reason != 0) fail_rename(from, place, reason);
    sync_folder(folder_of(place));
    remove_quietly(from);
}

/// Moves the old folder back after a process was killed between the two renames of replace_in_order.
void restore_replaced(const fs::path& place) {
    rename_to_free(replaced_path(place), place);
    sync_folder(folder_of(place));
    spdlog::warn("{} is restored: the save that was to replace it did not finish", place.string());
}

/// Makes the folder above `place` and returns `place`.
const fs::path& with_folder(const fs::path& place) {
    make_folders(folder_of(place));
    return place;
}

}  // namespace

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }
fs::path partial_path(const fs::path& place) { return with_suffix(place, kPartial); }
fs::path replaced_path(const fs::path& place) { return with_suffix(place, ".replaced"); }

PartialFolder::PartialFolder(const fs::path& place)
    : place_(without_slash(place)), path_(partial_path(place_)), lock_(with_folder(place_)) {
    if (!is_there(place_) && is_there(replaced_path(place_))) restore_replaced(place_);
    std::error_code error;
    fs::remove_all(path_, error);
    if (error)
        throw UserError("cannot write {}: {} is in the way: {}", place_.string(), path_.string(),
                        error.message());
}

PartialFolder::~PartialFolder() { remove_quietly(path_); }

void sync_tree(const fs::path& path) {
    if (!fs::is_directory(path)) return RawFile::open_to_read(path).sync();
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
        if (!entry.is_symlink()) sync_tree(entry.path());
    }
    sync_folder(path);
}

void publish(const fs::path& partial, const fs::path& place, Replace replace) {
    if (replace == Replace::Yes && is_there(place)) return rename_to_taken(partial, place);
    rename_to_free(partial, place);
    sync_folder(folder_of(place));
}

void replace_in_order(const fs::path& partial, const fs::path& place) {
    const fs::path aside = replaced_path(place);
    const bool folders = fs::is_directory(place) || fs::is_directory(partial);
    if (folders) {
        remove_quietly(aside);
        if (const int reason = rename_with(place, aside, 0)) fail_rename(place, aside, reason);
        sync_folder(folder_of(place));
        failpoint("old_one_aside");
    }
    if (const int reason = rename_with(partial, place, 0)) {
        if (folders) rename_with(aside, place, 0);
        fail_rename(partial, place, reason);
    }
    sync_folder(folder_of(place));
    if (folders) remove_quietly(aside);
}

/// Removes the files of a folder one by one. Each counts as progress, because a folder may have thousands.
static void remove_contents(const fs::path& folder) {
    if (!fs::is_directory(fs::symlink_status(folder))) return;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        fs::remove_all(entry.path());
        RawFile::count_progress();
    }
}

void remove_quietly(const fs::path& path) noexcept {
    try {
        if (!is_there(path)) return;
        fs::path doomed = path;
        if (fs::is_directory(path) && path.extension() != kPartial) {
            doomed = partial_path(path);
            fs::remove_all(doomed);
            fs::rename(path, doomed);
            // The name must be gone before the contents, in whatever order the disk writes.
            sync_folder(folder_of(doomed));
        }
        remove_contents(doomed);
        fs::remove_all(doomed);
    } catch (const std::exception& error) {
        spdlog::warn("cannot remove {}: {}", path.string(), error.what());
    }
}

}  // namespace argosy::checkpoint
