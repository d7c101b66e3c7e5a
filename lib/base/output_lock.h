// One writer at a time makes what is to appear at a place, a file or a folder. Every tool that writes holds
// this lock for its output: PLACE.partial.lock beside the place, which names the holder (base/file_lock.h). A
// file system without locks is warned of.
#pragma once

#include <filesystem>

#include "base/file_lock.h"

namespace argosy {

class OutputLock {
  public:
    /// UserError where another process holds it, naming that process and its host, or where nothing can be
    /// written beside `place`.
    explicit OutputLock(const std::filesystem::path& place);
    /// Removes the lock's file and lets go.
    ~OutputLock();
    OutputLock(const OutputLock&) = delete;
    OutputLock& operator=(const OutputLock&) = delete;

  private:
    FileLock file_;
};

}  // namespace argosy
