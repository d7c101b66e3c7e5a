// The host memory of tensors. Training frees and allocates the same large blocks in every step. If they were
// mapped anew each time, the kernel would zero all of them, 4 KiB at a time: a step on CPU was measured 15 %
// slower. If malloc keeps them, its small blocks end up between the large ones, and the gaps were measured at
// up to 18 % of the tensors. This heap keeps freed memory, holds nothing but large blocks, and gives back to
// the kernel what would exceed its limit.
//
// Invariants: 1. Holes are disjoint, sorted by address, and lie in the heap; blocks fill the rest of it.
// 2. A hole that is touched may have pages, one that is not touched has none. 3. The pages of blocks and
// holes together are at most kMaxExcess more than the largest sum of blocks so far. 4. There is a spare entry
// for each block, so free() allocates nothing: it runs in destructors, also where memory has run out. Cost: a
// search through the holes from the lowest address, microseconds for some hundred holes.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace argosy::observe {

class TensorHeap {
  public:
    /// A smaller block costs less in malloc, which keeps it too.
    static constexpr int64_t kMinBytes = 64 << 10;
    static constexpr double kMaxExcess = 0.05;

    TensorHeap() = default;
    TensorHeap(const TensorHeap&) = delete;

    /// Returns a block that is aligned to 64 bytes, with any content, or null if the kernel refuses memory.
    /// Any thread may call it, and free().
    void* allocate(int64_t num_bytes);
    /// REQUIRES: allocate(num_bytes) returned `block`.
    void free(void* block, int64_t num_bytes) noexcept;

    /// The bytes whose pages the heap has. A block that is not written yet counts.
    int64_t resident_bytes() const;

  private:
    struct Hole {
        int64_t num_bytes;
        bool touched;
    };
    using Holes = std::map<uintptr_t, Hole>;  // by address

    uintptr_t find_place(int64_t num_bytes) const;  // the lowest one; 0 if there is none
    bool grow(int64_t num_bytes);
    int64_t take(uintptr_t start, int64_t num_bytes);  // returns the bytes that were not touched
    bool provide_spares(int64_t more);                 // beside those of the blocks
    void put_hole(uintptr_t start, Hole hole);
    Holes::iterator remove_hole(Holes::iterator at);
    void add_hole(uintptr_t start, Hole hole);
    void give_back(int64_t num_bytes);

    mutable std::mutex mutex_;
    Holes holes_;
    std::multimap<uintptr_t, Hole> spares_;  // entries without a meaning
    int64_t num_blocks_ = 0;
    uintptr_t end_ = 0;  // of the newest mapping
    int64_t block_bytes_ = 0, max_block_bytes_ = 0, resident_bytes_ = 0;
};

}  // namespace argosy::observe
