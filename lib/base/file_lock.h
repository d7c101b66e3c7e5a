// A lock file: one process at a time holds it locked (flock), and its content names that process. The lock
// ends with the process, however the process ends. The holder removes the file before it unlocks. A file that
// a killed process left behind is unlocked, so the next process can take it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace argosy {

class FileLock {
  public:
    /// Opens or creates the file without locking it. Throws std::system_error on failure.
    explicit FileLock(std::filesystem::path path);
    FileLock(FileLock&& other) noexcept;
    FileLock& operator=(FileLock&& other) noexcept;
    /// Unlocks. The file stays.
    ~FileLock();

    /// Result of try_to_lock. Gone: the file was removed or replaced under its name; open it again. NoLocks:
    /// the file system has no locks, so other processes are not excluded.
    enum class Attempt { Taken, Held, Gone, NoLocks };

    /// Returns at once. After Taken and NoLocks the file's content is `holder`.
    Attempt try_to_lock(std::string_view holder);

    /// The file's content, which names the holder. Empty until the holder has written it.
    std::string holder() const;

    const std::filesystem::path& path() const { return path_; }

    /// Removes the file. Call it before unlocking.
    void remove() const noexcept;

  private:
    void write_holder(std::string_view holder) const;

    std::filesystem::path path_;
    int descriptor_ = -1;
};

/// "process 4711 on n1".
std::string this_process();

// Exclusive writing: only one process at a time writes to an output path, a file or a folder. Every tool that
// writes holds this lock for its output: PATH.partial.lock beside the output, which names the holder
// (base/file_lock.h). On a file system without locks it only warns.

class OutputLock {
  public:
    /// UserError if another process holds the lock (naming that process and its host), or if nothing can be
    /// written beside `place`, the output path.
    explicit OutputLock(const std::filesystem::path& place);
    /// Removes the lock file and unlocks.
    ~OutputLock();
    OutputLock(const OutputLock&) = delete;
    OutputLock& operator=(const OutputLock&) = delete;

  private:
    FileLock file_;
};

}  // namespace argosy
