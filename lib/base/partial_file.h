// A file that appears whole or not at all. It is written as PATH.partial beside its final place; `commit`
// makes it durable and renames it, the destructor of an uncommitted one removes it. One writer to a path at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/raw_file.h"

namespace argosy {

class PartialFile {
  public:
    /// UserError when the place cannot be written, or holds something that is no plain file.
    explicit PartialFile(std::filesystem::path path);
    ~PartialFile();
    PartialFile(const PartialFile&) = delete;
    PartialFile& operator=(const PartialFile&) = delete;

    /// Where its bytes are until `commit`.
    const std::filesystem::path& partial_path() const { return file_.path(); }

    void append(std::string_view text);
    void write_at(int64_t offset, std::span<const std::byte> bytes) { file_.write_at(offset, bytes); }
    void read_at(int64_t offset, std::span<std::byte> bytes) const { file_.read_at(offset, bytes); }

    /// Bytes appended so far.
    int64_t size_bytes() const { return size_bytes_; }

    /// fsync, rename, fsync of the folder. Nothing may be written after it.
    void commit();

  private:
    std::filesystem::path path_;
    RawFile file_;
    bool committed_ = false;
    int64_t size_bytes_ = 0;
};

}  // namespace argosy
