// Sizes: powers of 1024, and sizes that are rounded up to units.
#pragma once

#include <cstdint>

namespace argosy {

inline constexpr int64_t kMebi = int64_t{1} << 20, kGibi = int64_t{1} << 30;

constexpr double gibibytes(int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kGibi); }

/// The number of parts of `size`, the last of which may be smaller.
constexpr int64_t divide_up(int64_t count, int64_t size) { return (count + size - 1) / size; }

/// The smallest multiple of `unit` that is at least `count`.
constexpr int64_t round_up(int64_t count, int64_t unit) { return divide_up(count, unit) * unit; }

}  // namespace argosy
