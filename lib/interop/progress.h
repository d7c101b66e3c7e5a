// How far a long transfer of bytes is.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/environment.h"
#include "base/progress.h"

namespace argosy::interop {

class Progress {
  public:
    /// `title`: what is done, as "converting".
    Progress(std::string title, int64_t total_bytes, const Environment& environment);

    /// From any thread.
    void add(int64_t num_bytes);

    /// "12.3 GB in 4.5 s, 2.73 GB/s": of what was added so far.
    std::string summary() const;

  private:
    int64_t bytes_per_second() const;

    int64_t total_bytes_;
    std::atomic<int64_t> done_bytes_ = 0;
    std::mutex mutex_;
    argosy::Progress shown_;
};

/// "1.23 GB", in powers of 1000.
std::string bytes_text(int64_t num_bytes);

}  // namespace argosy::interop
