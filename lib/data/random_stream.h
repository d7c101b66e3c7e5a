// A stream of random choices for generating text: a pure function of seed, purpose and index, so that
// document 1000 of a corpus can be generated without the documents before it.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "base/random.h"

namespace argosy::data {

class RandomStream {
  public:
    RandomStream(uint64_t seed, std::string_view purpose, uint64_t index)
        : key_(seed ^ name_key(purpose)), index_(index) {}

    /// Random number in 0 .. bound-1; the bias of at most bound / 2^32 does not matter here.
    int below(int bound) { return static_cast<int>(uint64_t{word()} * static_cast<uint64_t>(bound) >> 32); }

    /// Random number in first .. last, both included.
    int between(int first, int last) { return first + below(last - first + 1); }

    bool chance(int percent) { return below(100) < percent; }

    template <class Items>
    const auto& pick(const Items& items) {
        return items[below(static_cast<int>(std::size(items)))];
    }

    /// A random item other than `taken`. REQUIRES: at least two items, all distinct.
    template <class Items, class Item>
    const auto& pick_other(const Items& items, const Item& taken) {
        const auto* item = &pick(items);
        while (*item == taken) item = &pick(items);
        return *item;
    }

  private:
    uint32_t word() {
        if (num_used_ % 4 == 0) {
            const auto block = static_cast<uint32_t>(num_used_ / 4);
            words_ = philox({block, 0, static_cast<uint32_t>(index_), static_cast<uint32_t>(index_ >> 32)},
                            {static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)});
        }
        return words_[num_used_++ % 4];
    }

    uint64_t key_, index_;
    uint64_t num_used_ = 0;
    std::array<uint32_t, 4> words_{};
};

}  // namespace argosy::data
