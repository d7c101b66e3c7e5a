// How far a long transfer of bytes is: a line that is rewritten on a terminal, else now and then a line of
// the log.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/environment.h"
#include "base/live_line.h"

namespace argosy::interop {

class Progress {
  public:
    /// `title`: what is done, as "converting".
    Progress(std::string title, int64_t total_bytes, const Environment& environment);
    ~Progress();

    /// From any thread.
    void add(int64_t num_bytes);

    /// "12.3 GB in 4.5 s, 2.73 GB/s": of what was added so far.
    std::string summary() const;

  private:
    std::string text(int64_t done_bytes, double seconds) const;

    std::string title_;
    int64_t total_bytes_;
    double started_;
    std::atomic<int64_t> done_bytes_ = 0;
    std::mutex mutex_;
    double said_at_;
    std::unique_ptr<LiveLine> line_;  // null where nobody looks at a terminal
};

/// "1.23 GB", in powers of 1000.
std::string bytes_text(int64_t num_bytes);

}  // namespace argosy::interop
