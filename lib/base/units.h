// Powers of 1024.
#pragma once

#include <cstdint>

namespace argosy {

inline constexpr int64_t kMebi = int64_t{1} << 20, kGibi = int64_t{1} << 30;

constexpr double gibibytes(int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kGibi); }

}  // namespace argosy
