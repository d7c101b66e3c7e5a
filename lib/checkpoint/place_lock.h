// That one process at a time makes what is to appear at a place: X.partial.lock beside it, locked (flock) as
// long as this lives. The lock goes with the process, however that ends; a file that a killed one left holds
// nobody. A file system without locks is warned of.
#pragma once

#include <filesystem>

#include "base/raw_file.h"

namespace argosy::checkpoint {

class PlaceLock {
  public:
    /// UserError where another holds it, or where nothing can be written beside `place`.
    explicit PlaceLock(const std::filesystem::path& place);
    /// Takes the file away.
    ~PlaceLock();
    PlaceLock(const PlaceLock&) = delete;
    PlaceLock& operator=(const PlaceLock&) = delete;

  private:
    RawFile file_;
};

}  // namespace argosy::checkpoint
