// File access by offset, without HDF5 and without a cursor: each call transfers all bytes or fails. Any
// thread may read and write at any time. sync_folder makes file names durable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace argosy {

/// A file descriptor that the destructor closes.
class Descriptor {
  public:
    explicit Descriptor(int number = -1) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();
    int number() const { return number_; }

  private:
    int number_;
};

/// Whether `path` names the open file `descriptor`: false only if the path is missing or names another file.
bool names(const std::filesystem::path& path, const Descriptor& descriptor);

class RawFile {
  public:
    /// UserError if the file is missing, unreadable or a folder.
    static RawFile open_to_read(const std::filesystem::path& path);

    /// Open a file for reading and writing. `create` creates or empties the file; `open_to_write` needs an
    /// existing file. UserError if the path cannot be written.
    static RawFile create(const std::filesystem::path& path);
    static RawFile open_to_write(const std::filesystem::path& path);

    /// Creates a file without a name in the folder of `path`, for reading and writing. The file vanishes when
    /// it is closed. REQUIRES: `path` does not exist, because the file has this name for a moment. UserError
    /// if the folder cannot be written.
    static RawFile create_nameless(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return path_; }
    int64_t size_bytes() const;

    /// Bytes that this process has read, written and synced so far, in all files. Any thread may call it.
    static int64_t num_bytes_moved();
    /// Counts work on files without bytes, such as a removed file, as a byte.
    static void count_progress();

    /// DamageError (a truncated file) if the file ends before the range does.
    void read_at(int64_t offset, std::span<std::byte> bytes) const;
    void write_at(int64_t offset, std::span<const std::byte> bytes) const;

    /// When this returns, the data is on disk and not only in a cache. Large files are synced piece by piece,
    /// so that num_bytes_moved() grows meanwhile.
    void sync() const;

    /// Starts writing these bytes to disk and returns at once, so that a later `sync` has less to do.
    void begin_sync(int64_t offset, int64_t num_bytes) const;

  private:
    RawFile(std::filesystem::path path, int flags);
    [[noreturn]] void fail(const char* action) const;
    [[noreturn]] void fail_to_write(int64_t offset, size_t num_bytes) const;

    std::filesystem::path path_;
    Descriptor descriptor_;
};

// Small text files as a whole.

/// UserError if the file is missing, unreadable or larger than `max_bytes`.
std::string read_text(const std::filesystem::path& path, int64_t max_bytes);

/// The file is durable when write_text() returns.
void write_text(const std::filesystem::path& path, const std::string& text);

/// Makes a folder and the folders above it, and makes their names durable. RunError if the disk is full or an
/// fsync fails; UserError for other failures.
void make_folders(const std::filesystem::path& folder);

/// When this returns, the names in the folder are on disk.
void sync_folder(const std::filesystem::path& folder);

/// Advice for an errno, as the end of a message: "; make room ...". Empty if there is none.
const char* remedy_for(int reason);

/// RunError unless the file system of `folder` has `num_bytes` free for this user. `what` names what needs
/// them. A file system that does not say how much is free has enough.
void require_space(const std::filesystem::path& folder, int64_t num_bytes, const std::string& what);

/// The folder that a path lies in; "." if the path names no folder.
std::filesystem::path folder_of(const std::filesystem::path& path);

}  // namespace argosy
