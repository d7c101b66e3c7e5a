// Counter-based randomness: a value is a pure function of its key and its index, so it does not depend on how
// many ranks compute it or in which order. Exactly rounded operations only; no libm.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace argosy {

/// Philox4x32-10 (Salmon et al., SC'11): four random words of a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// FNV-1a, 64 bits: turns a name into a key.
uint64_t name_key(std::string_view name);

/// A keyed random order of 0 .. size-1 that needs no memory: `at` is a bijection on [0, size).
class Permutation {
  public:
    Permutation(int64_t size, uint64_t key, uint64_t stream);
    int64_t at(int64_t position) const;

  private:
    int64_t size_;
    std::array<uint32_t, 2> key_;
    std::array<uint32_t, 2> stream_;
    int half_bits_;  // the Feistel network permutes 2 * half_bits_ bits; values past size_ walk on
};

}  // namespace argosy
