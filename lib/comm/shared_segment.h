// Memory that processes of one node share. It has no name: a killed process leaves nothing behind, and the
// size of /dev/shm is no limit. Pages cost memory once they are written.
#pragma once

#include <cstddef>
#include <cstdint>

namespace argosy::comm {

class SharedSegment {
  public:
    /// Where another process of the node finds a segment.
    struct Address {
        int64_t process = 0, descriptor = -1;
    };

    /// Zeroed memory of this process. Throws RunError.
    static SharedSegment create(size_t bytes);
    /// That of another process, which must be of the same user. Throws RunError. Whether it is the right one,
    /// and not that of a process with the same number in another container, must follow from its content.
    static SharedSegment attach(const Address& address, size_t bytes);

    SharedSegment(SharedSegment&& other) noexcept;
    SharedSegment& operator=(SharedSegment&& other) noexcept;
    ~SharedSegment();

    std::byte* data() const { return data_; }
    /// REQUIRES: created here, and not closed.
    Address address() const;
    /// Once nobody is to attach any more: the memory stays, and a limit on open files has room again.
    void close_descriptor();

  private:
    SharedSegment(int descriptor, size_t bytes);

    int descriptor_ = -1;
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace argosy::comm
