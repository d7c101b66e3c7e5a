// A file that one process at a time holds locked (flock), and whose content names that process. The lock ends
// with the process, however the process ends. The holder removes the file before it lets go, so that nothing
// is left behind; a file that a killed process left is free for the next one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace argosy {

class FileLock {
  public:
    /// Opens the file, or makes it, and does not lock it yet. std::system_error where that fails.
    explicit FileLock(std::filesystem::path path);
    FileLock(FileLock&& other) noexcept;
    FileLock& operator=(FileLock&& other) noexcept;
    /// Lets go of the lock. The file stays.
    ~FileLock();

    /// Gone: the name now belongs to no file or to another one; open it anew. NoLocks: the file system has no
    /// locks, and nothing keeps other processes out.
    enum class Attempt { Taken, Held, Gone, NoLocks };

    /// Does not wait. After Taken and NoLocks the file's content is `holder`.
    Attempt try_to_lock(std::string_view holder);

    /// The content: who holds the lock. Empty while the holder has yet to write it.
    std::string holder() const;

    const std::filesystem::path& path() const { return path_; }

    /// Removes the file. Call it before letting go.
    void remove() const noexcept;

  private:
    void write_holder(std::string_view holder) const;

    std::filesystem::path path_;
    int descriptor_ = -1;
};

/// "process 4711 on n1".
std::string this_process();

}  // namespace argosy
