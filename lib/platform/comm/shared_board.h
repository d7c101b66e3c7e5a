// A board is the shared segment in which one rank publishes data to the other ranks of its group: the number
// of rounds that it has published and consumed, and the published blocks in a ring. A round has the same
// number on all ranks. Each rank writes only to its own board; peers read it without the owner's help.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace argosy::comm {

// Memory that processes of one node share. The segment has no name (memfd), so a killed process leaves
// nothing behind, and the size of /dev/shm is no limit. A page takes memory only once it is written.

class SharedSegment {
  public:
    /// Address by which another process of the node opens a segment.
    struct Address {
        int64_t process = 0, descriptor = -1;
    };

    /// Makes a zeroed segment. Throws RunError.
    static SharedSegment create(size_t bytes);
    /// Maps the segment of another process of the same user. Throws RunError. The caller must check the
    /// content: a process in another container may have the same process number.
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

class SharedBoard {
  public:
    /// Makes this rank's board. `ring_bytes` limits the blocks that not all ranks have consumed yet. Throws
    /// RunError.
    static SharedBoard create(int64_t ring_bytes);
    /// Maps a peer's board. Throws RunError if the board has another key.
    static SharedBoard attach(const SharedSegment::Address& address, int64_t key, int64_t ring_bytes);

    SharedSegment::Address address() const { return segment_.address(); }
    /// REQUIRES: all peers have attached.
    void close_descriptor() { segment_.close_descriptor(); }
    int64_t key() const { return head().key; }

    /// For the owner. Returns room for the next round's block, or null if readers have not consumed enough
    /// rounds yet; `consumed` is the number of rounds that all readers have consumed.
    std::byte* reserve(int64_t bytes, int64_t consumed);
    /// `signature` tells the peers what the block is a part of.
    void publish(std::byte* block, uint64_t signature);
    void add_consumed() { head().consumed.fetch_add(1, std::memory_order_release); }

    /// For any rank.
    int64_t published() const { return head().published.load(std::memory_order_acquire); }
    int64_t consumed() const { return head().consumed.load(std::memory_order_acquire); }
    /// REQUIRES: round < published(), for both.
    const std::byte* block(int64_t round) const;
    uint64_t signature(int64_t round) const { return head().blocks[round % kMaxRounds].signature; }

  private:
    static constexpr int64_t kMaxRounds = 1024;  // maximum number of rounds published but not consumed
    struct PublishedBlock {
        int64_t offset = 0;
        uint64_t signature = 0;
    };
    struct Head {
        int64_t key = 0;
        alignas(64) std::atomic<int64_t> published = 0;
        alignas(64) std::atomic<int64_t> consumed = 0;
        alignas(64) std::array<PublishedBlock, kMaxRounds> blocks = {};  // by round % kMaxRounds
    };
    static_assert(std::atomic<int64_t>::is_always_lock_free);
    struct Block {
        int64_t round, begin, end;
    };

    SharedBoard(SharedSegment segment, int64_t ring_bytes);
    Head& head() const { return *reinterpret_cast<Head*>(segment_.data()); }
    std::byte* ring() const { return segment_.data() + sizeof(Head); }

    SharedSegment segment_;
    int64_t ring_bytes_;
    std::deque<Block> held_;  // on the owner: blocks that readers may still read, oldest first
};

}  // namespace argosy::comm
