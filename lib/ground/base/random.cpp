#include "base/random.h"

#include "base/error.h"

namespace argosy {

uint64_t name_key(std::string_view name) {
    uint64_t hash = 0xCBF29CE484222325;
    for (const char letter : name) {
        hash ^= static_cast<unsigned char>(letter);
        hash *= 0x100000001B3;
    }
    return hash;
}

Permutation::Permutation(int64_t size, uint64_t key, uint64_t stream)
    : size_(size),
      key_{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)},
      stream_{static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
      half_bits_(1) {
    ARGOSY_CHECK(size > 0, "a permutation of {} elements", size);
    while ((int64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

int64_t Permutation::at(int64_t position) const {
    ARGOSY_CHECK(position >= 0 && position < size_, "position {} of {}", position, size_);
    constexpr uint32_t kRounds = 6;
    const uint32_t mask = half_bits_ == 32 ? ~0U : (1U << half_bits_) - 1;
    uint64_t value = static_cast<uint64_t>(position);
    do {  // the network permutes at most 4 * size_ values, so this loop runs at most four times on average
        uint32_t left = static_cast<uint32_t>(value >> half_bits_),
                 right = static_cast<uint32_t>(value) & mask;
        for (uint32_t round = 0; round < kRounds; ++round) {
            const uint32_t mixed = philox({right, round, stream_[0], stream_[1]}, key_)[0] & mask;
            const uint32_t next = left ^ mixed;
            left = right;
            right = next;
        }
        value = static_cast<uint64_t>(left) << half_bits_ | right;
    } while (value >= static_cast<uint64_t>(size_));
    return static_cast<int64_t>(value);
}

}  // namespace argosy
