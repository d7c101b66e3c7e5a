// Counts pairs of tokens in a hash table with open addressing that grows up to a fixed size (256 MiB).
// Counting stops at the first pair that does not fit, so the counts always describe the beginning of the
// stream.
#pragma once

#include <cstdint>
#include <vector>

namespace argosy::data {

class PairCounts {
  public:
    /// `max_slots` is a power of two; at most three quarters of the slots are used.
    explicit PairCounts(int64_t max_slots = int64_t{1} << 24);

    void add(uint32_t first, uint32_t second);

    /// Number of counted pairs, including repeats.
    int64_t total() const { return total_; }

    /// Calls visit(first, second, count) for each distinct pair.
    template <class Visit>
    void for_each(Visit visit) const {
        for (const Slot& slot : slots_) {
            if (slot.count == 0) continue;
            visit(static_cast<uint32_t>(slot.pair >> 32), static_cast<uint32_t>(slot.pair), slot.count);
        }
    }

  private:
    struct Slot {
        uint64_t pair = 0;
        int64_t count = 0;  // 0: a free slot
    };
    Slot& find(uint64_t pair);
    bool make_room();

    std::vector<Slot> slots_;
    int64_t max_slots_;
    int64_t num_used_ = 0, total_ = 0;
    bool full_ = false;
};

}  // namespace argosy::data
