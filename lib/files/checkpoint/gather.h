// Reads many short runs of a file with few large reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/raw_file.h"

namespace argosy::checkpoint {

/// Runs that are less than a page apart are read through a small buffer, together with the bytes between
/// them. REQUIRES: runs are added by ascending file offsets, and `out` has the bytes after flush().
class Gather {
  public:
    Gather(const RawFile& file, std::span<std::byte> out) : file_(file), out_(out) {}

    /// Reads `count` bytes at byte `from` of the file to byte `to` of `out`, at the latest in flush().
    void add(int64_t from, int64_t to, int64_t count);
    void flush();

    /// Bytes read so far, with those between runs.
    int64_t fetched() const { return fetched_; }

  private:
    struct ByteRun {
        int64_t from, to, count;
    };
    int64_t begin() const { return pending_.front().from; }
    int64_t end() const { return pending_.back().from + pending_.back().count; }

    const RawFile& file_;
    std::span<std::byte> out_;
    std::vector<ByteRun> pending_;
    std::vector<std::byte> buffer_;
    int64_t fetched_ = 0;
};

}  // namespace argosy::checkpoint
