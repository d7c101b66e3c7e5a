// Rounding to float8 by arithmetic, for GPUs without such instructions, and in the emulator of kernels.
// Included by machine.cuh.
#pragma once

namespace argosy::kernels::cuda {

/// Rounds to nearest, ties to even; what is too large becomes kLargest, without its sign.
template <int kFractionBits, int kBias, uint32_t kLargest>
__device__ inline uint32_t rounded_to_float8(float x) {
    const uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return sign | 0x7f;  // NaN
    constexpr uint32_t kLeast = 128 - kBias;    // the exponent of the smallest normal number, in fp32
    const uint32_t exponent = size >> 23 > kLeast ? size >> 23 : kLeast;
    if (exponent > kLeast + 2 * kBias) return sign | kLargest;
    // In units of the last place. A carry goes to the exponent.
    const float units_of_one = __uint_as_float((254 + kFractionBits - exponent) << 23);
    const auto units = static_cast<uint32_t>(rintf(__uint_as_float(size) * units_of_one));
    const uint32_t rounded = ((exponent - kLeast) << kFractionBits) + units;
    return sign | (rounded < kLargest ? rounded : kLargest);
}
__device__ inline uint32_t rounded_to_e4m3(float x) { return rounded_to_float8<3, 7, 0x7e>(x); }
__device__ inline uint32_t rounded_to_e5m2(float x) { return rounded_to_float8<2, 15, 0x7b>(x); }

}  // namespace argosy::kernels::cuda
