// Counter-based random numbers: a value is a pure function of its key and its index, so it does not depend on
// how many ranks compute it or in which order. The code uses only integer operations, so every machine
// computes the same values. Hashes (FNV-1a) make the keys.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace argosy {

/// Philox4x32-10 (Salmon et al., SC'11): maps a 128-bit counter and a 64-bit key to four random 32-bit words.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
    constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
    constexpr int kRounds = 10;
    for (int round = 0; round < kRounds; ++round) {
        const uint64_t product0 = kMultiplier0 * counter[0];
        const uint64_t product1 = kMultiplier1 * counter[2];
        counter = {
            static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
            static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
        key[0] += kWeyl0;
        key[1] += kWeyl1;
    }
    return counter;
}

/// FNV-1a, 64 bits: turns a name into a key.
uint64_t name_key(std::string_view name);

/// A keyed pseudorandom permutation of 0 .. size-1 that needs no memory: `at` is a bijection on [0, size).
class Permutation {
  public:
    Permutation(int64_t size, uint64_t key, uint64_t stream);
    int64_t at(int64_t position) const;

  private:
    int64_t size_;
    std::array<uint32_t, 2> key_;
    std::array<uint32_t, 2> stream_;
    int half_bits_;  // the Feistel network permutes 2 * half_bits_ bits; values >= size_ are permuted again
};

/// A stream of random choices: a pure function of seed, purpose and index, so that document 1000 of a corpus
/// can be generated without the documents before it.
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

/// A hash of numbers, a step for each number, for keys that ranks compare.
class Fnv {
  public:
    void add(int64_t value) { hash_ = (hash_ ^ static_cast<uint64_t>(value)) * 0x100000001b3; }
    uint64_t hash() const { return hash_; }

  private:
    uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace argosy
