// A file that appears whole or not at all. The bytes go to PATH.partial beside the final path; `commit` makes
// them durable and renames the file; the destructor removes an uncommitted file. The object holds the lock of
// its path (base/file_lock.h), so a second writer is refused. A commit replaces only an earlier result of
// the same tool, no other file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file_lock.h"
#include "base/raw_file.h"

namespace argosy {

/// Whether the file at `path` is an earlier result of the tool that is about to write there.
using IsOwn = std::function<bool(const std::filesystem::path& path)>;

/// The first `count` bytes of a file, or all where it is shorter. Empty for anything but a regular file.
std::string first_bytes(const std::filesystem::path& path, size_t count);

/// True for files whose first bytes are `mark`, such as the titles of a CSV file.
IsOwn begins_with(std::string mark);

/// True for JSON objects, indented by two spaces, whose first key is "format" with this value.
IsOwn is_json_of_format(const std::string& format);

/// UserError if `path` cannot be written or must not be replaced: a folder, a device, or a file that is
/// neither empty nor `is_own`.
void require_replaceable(const std::filesystem::path& path, const IsOwn& is_own);

class PartialFile {
  public:
    /// UserError as in require_replaceable, and if another process writes to `path`.
    PartialFile(std::filesystem::path path, IsOwn is_own);
    ~PartialFile();
    PartialFile(const PartialFile&) = delete;
    PartialFile& operator=(const PartialFile&) = delete;

    /// The final path, where the file appears once it is committed.
    const std::filesystem::path& path() const { return path_; }

    /// The path of the bytes until `commit`.
    const std::filesystem::path& partial_path() const { return file_->path(); }

    void append(std::string_view text);
    void write_at(int64_t offset, std::span<const std::byte> bytes) { file_->write_at(offset, bytes); }

    /// fsync, rename, fsync of the folder. Nothing may be written after it. UserError if a file that must not
    /// be replaced has appeared at the path in the meantime.
    void commit();

  private:
    std::filesystem::path path_;
    IsOwn is_own_;
    std::optional<OutputLock> lock_;
    std::optional<RawFile> file_;
    bool committed_ = false;
    int64_t size_bytes_ = 0;
};

}  // namespace argosy
