// The files that a program writes: an output has one writer at a time (OutputLock, over FileLock), and
// appears whole or not at all (PartialFile).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/raw_file.h"

namespace argosy {

/// A lock file: one process at a time holds it locked (flock), and its content names that process. The lock
/// ends with the process, however the process ends. The destructor unlocks; the holder removes the file
/// before. A file that a killed process left behind is unlocked, so the next process can take it.
class FileLock {
  public:
    /// Opens or creates the file without locking it. Throws std::system_error on failure.
    explicit FileLock(std::filesystem::path path);

    /// Result of try_to_lock. Held: another process holds the lock. Gone: path() no longer names this file;
    /// open it again. NoLocks: the file system has no locks, so other processes are not excluded.
    enum class Attempt { Taken, Held, Gone, NoLocks };

    /// Returns at once. Writes `holder` to the file if the result is Taken or NoLocks.
    Attempt try_to_lock(std::string_view holder);

    /// The file's content, which names the holder. Empty until the holder has written it.
    std::string holder() const;

    const std::filesystem::path& path() const { return path_; }

    /// Whether path() no longer names this file: someone has removed it, or its folder.
    bool is_gone() const { return !names(path_, descriptor_); }

    /// Removes the file. Call it before unlocking.
    void remove() const noexcept;

  private:
    void write_holder(std::string_view holder) const;

    std::filesystem::path path_;
    Descriptor descriptor_;
};

/// The name of this host.
std::string host_name();

/// This process and its host, for messages: "process 4711 on n1".
std::string this_process();

/// Lets one process at a time write to an output path (a file or a folder). The lock is the file
/// PATH.partial.lock beside the output. Every tool holds the lock of each output that it writes. On a file
/// system without locks, the constructor only logs a warning.
class OutputLock {
  public:
    /// `place` is the output path. UserError if another process holds the lock (the error names the process
    /// and its host), or if no file can be written beside the output.
    explicit OutputLock(const std::filesystem::path& place);
    /// Removes the lock file and unlocks.
    ~OutputLock();
    OutputLock(const OutputLock&) = delete;
    OutputLock& operator=(const OutputLock&) = delete;

  private:
    FileLock file_;
};

/// Whether the file at `path` is an earlier result of the tool that is about to write there.
using IsOwn = std::function<bool(const std::filesystem::path& path)>;

/// The first `count` bytes of a file, or all where it is shorter. Empty for anything but a regular file.
std::string first_bytes(const std::filesystem::path& path, size_t count);

/// True for files whose first bytes are `mark`, such as the column titles of a CSV file.
IsOwn begins_with(std::string mark);

/// True for JSON objects, indented by two spaces, whose first key is "format" with this value.
IsOwn is_json_of_format(const std::string& format);

/// Whether a path stands for standard input or standard output: "-".
bool is_standard_stream(const std::filesystem::path& path);

/// Writes text to stdout or stderr. RunError if that fails.
void print_text(const std::string& text, std::FILE* stream);

/// A file that appears whole or not at all. The bytes go to PATH.partial beside the final path; `commit`
/// makes them durable and renames the file; the destructor removes an uncommitted file. The object holds the
/// OutputLock of its path, so a second writer is refused. A commit replaces only an earlier result of the
/// same tool, no other file.
class PartialFile {
  public:
    /// UserError if `path` cannot be written or must not be replaced (a folder, a device, a symbolic link, or
    /// a file that is neither empty nor `is_own`), or if another process writes to it.
    PartialFile(std::filesystem::path path, IsOwn is_own);
    ~PartialFile();
    PartialFile(const PartialFile&) = delete;
    PartialFile& operator=(const PartialFile&) = delete;

    /// The final path, where the file appears once it is committed.
    const std::filesystem::path& path() const { return path_; }

    /// PATH.partial, where the bytes are until `commit`.
    const std::filesystem::path& partial_path() const { return file_->path(); }

    void append(std::string_view text);
    void write_at(int64_t offset, std::span<const std::byte> bytes) { file_->write_at(offset, bytes); }

    /// Makes the file durable under its final path: fsync, rename, fsync of the folder. Nothing may be
    /// written after `commit`. UserError if a file that must not be replaced has appeared at the final path.
    void commit();

  private:
    std::filesystem::path path_;
    IsOwn is_own_;
    std::optional<OutputLock> lock_;
    std::optional<RawFile> file_;
    bool committed_ = false;
    int64_t size_bytes_ = 0;
};

/// A text that a tool writes at its end: a PartialFile, or stdout if the path is "-".
class ResultFile {
  public:
    /// UserError as PartialFile does, so that a bad path is reported before the tool's work.
    ResultFile(const std::filesystem::path& path, IsOwn is_own);

    /// Writes the whole text. Call it once.
    void write(const std::string& text);

  private:
    std::optional<PartialFile> file_;  // none: stdout
};

}  // namespace argosy
