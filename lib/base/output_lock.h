// Exclusive writing: only one process at a time writes to an output path, a file or a folder. Every tool that
// writes holds this lock for its output: PATH.partial.lock beside the output, which names the holder
// (base/file_lock.h). On a file system without locks it only warns.
#pragma once

#include <filesystem>

#include "base/file_lock.h"

namespace argosy {

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
