// Progress of a long transfer of bytes, and numbers of bytes as text.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/progress.h"

namespace argosy::interop {

class ByteProgress {
  public:
    /// `task` begins each line: "converting".
    ByteProgress(std::string task, int64_t total_bytes);

    /// Counts transferred bytes. Any thread may call add().
    void add(int64_t num_bytes);

    /// Describes the bytes added so far: "12.3 GB in 4.5 s, 2.73 GB/s".
    std::string summary() const;

  private:
    int64_t bytes_per_second() const;

    int64_t total_bytes_;
    std::atomic<int64_t> done_bytes_ = 0;
    std::mutex mutex_;
    Progress progress_;
};

/// "1.23 GB", in powers of 1000.
std::string bytes_text(int64_t num_bytes);

}  // namespace argosy::interop
