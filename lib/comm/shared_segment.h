// Memory that processes of one node share. The segment has no name (memfd), so a killed process leaves
// nothing behind, and the size of /dev/shm is no limit. A page takes memory only once it is written.
#pragma once

#include <cstddef>
#include <cstdint>

namespace argosy::comm {

class SharedSegment {
  public:
    /// Address by which another process of the node opens a segment.
    struct Address {
        int64_t process = 0, descriptor = -1;
    };

    /// Makes a zeroed segment. Throws RunError.
    static SharedSegment create(size_t bytes);
    /// Maps the segment of another process of the same user. Throws RunError. The caller must check the
    /// content: a process in another container may have the same number.
    static SharedSegment attach(const Address& address, size_t bytes);

    SharedSegment(SharedSegment&& other) noexcept;
    SharedSegment& operator=(SharedSegment&& other) noexcept;
    ~SharedSegment();

    std::byte* data() const { return data_; }
    /// REQUIRES: this process created the segment, and has not closed the descriptor.
    Address address() const;
    /// Frees the file descriptor; the memory stays. REQUIRES: no process will attach any more.
    void close_descriptor();

  private:
    SharedSegment(int descriptor, size_t bytes);

    int descriptor_ = -1;
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace argosy::comm
