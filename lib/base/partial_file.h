// A file that appears whole or not at all. It is written as PATH.partial beside its final place; `commit`
// makes it durable and renames it, the destructor of an uncommitted one removes it. It holds the lock of its
// place (base/output_lock.h): a second writer is refused. It replaces a former result of the same tool, and
// no other file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/output_lock.h"
#include "base/raw_file.h"

namespace argosy {

/// Whether the file at `path` is a former result of the tool that is about to write there.
using IsOwn = std::function<bool(const std::filesystem::path& path)>;

/// True for files whose first 256 bytes contain `mark`: the format's name in JSON, the titles in CSV.
IsOwn begins_with(std::string mark);

/// UserError where `path` cannot be written or holds what must stay: a folder, a device, a file that is not
/// empty and not `is_own`.
void require_replaceable(const std::filesystem::path& path, const IsOwn& is_own);

class PartialFile {
  public:
    /// UserError as of require_replaceable, and where another process writes to `path`.
    PartialFile(std::filesystem::path path, IsOwn is_own);
    ~PartialFile();
    PartialFile(const PartialFile&) = delete;
    PartialFile& operator=(const PartialFile&) = delete;

    /// The name of the file once it is committed.
    const std::filesystem::path& path() const { return path_; }

    /// Where its bytes are until `commit`.
    const std::filesystem::path& partial_path() const { return file_->path(); }

    void append(std::string_view text);
    void write_at(int64_t offset, std::span<const std::byte> bytes) { file_->write_at(offset, bytes); }

    /// fsync, rename, fsync of the folder. Nothing may be written after it. UserError where a file that must
    /// stay has appeared at the path meanwhile.
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
