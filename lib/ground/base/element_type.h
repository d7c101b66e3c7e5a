// The element types of files, collectives and benchmarks, and how collectives combine elements. This header
// does not need LibTorch.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace argosy {

/// The types are in the order of nccl-tests, followed by UInt16, which only files have.
enum class ElementType {
    Int8,
    UInt8,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Float16,
    Float32,
    Float64,
    BFloat16,
    Float8E4M3,
    Float8E5M2,
    UInt16
};

constexpr int64_t size_bytes(ElementType type) {
    constexpr int64_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1, 2};
    return kSizes[static_cast<int>(type)];
}

constexpr bool is_floating(ElementType type) {
    return type >= ElementType::Float16 && type <= ElementType::Float8E5M2;
}

enum class Reduction { Sum, Max };

// Conversions between one- and two-byte floating-point formats and float. Widening is exact; narrowing rounds
// to nearest, ties to even. These conversions are slow; kernels/elementwise.h has fast ones for bf16.

struct Float16 {
    using Bits = uint16_t;
    static float value(Bits bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
    static Bits rounded(float value) { return std::bit_cast<Bits>(static_cast<_Float16>(value)); }
};

struct BFloat16 {
    using Bits = uint16_t;
    static float value(Bits bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
    static Bits rounded(float value) {
        const auto bits = std::bit_cast<uint32_t>(value);
        if (value != value) return static_cast<Bits>(bits >> 16 | 0x40);     // a NaN becomes a quiet NaN
        return static_cast<Bits>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);  // to nearest, ties to even
    }
};

/// An eight-bit format of the Open Compute Project: a sign bit, kExponentBits and kFractionBits. In a format
/// without infinities (E4M3), the largest exponent encodes numbers too, except that exponent and fraction
/// with all bits set encode NaN. Values that are too large become infinity, or NaN in a format without
/// infinities.
template <int kExponentBits, int kFractionBits, bool kInfinities>
struct Float8 {
    using Bits = uint8_t;
    static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
    static constexpr int kMinExponent = 1 - kBias;
    static constexpr int kHidden = 1 << kFractionBits;
    static constexpr int kTopExponent = (1 << kExponentBits) - 1;  // as stored
    static constexpr Bits kInfinity = kTopExponent << kFractionBits;
    static constexpr Bits kNotANumber = 0x7F;
    static constexpr Bits kTooLarge = kInfinities ? kInfinity : kNotANumber;
    static constexpr Bits kLargest = kInfinities ? kInfinity - 1 : kNotANumber - 1;  // of the finite numbers

    static float value(Bits bits) {
        const int exponent = (bits & 0x7F) >> kFractionBits, fraction = bits & (kHidden - 1);
        const float sign = bits & 0x80 ? -1.0F : 1.0F;
        if (kInfinities && exponent == kTopExponent) {
            return sign * (fraction == 0 ? std::numeric_limits<float>::infinity()
                                         : std::numeric_limits<float>::quiet_NaN());
        }
        if ((bits & 0x7F) == kNotANumber) return sign * std::numeric_limits<float>::quiet_NaN();
        if (exponent == 0)
            return sign * std::ldexp(static_cast<float>(fraction), kMinExponent - kFractionBits);
        return sign * std::ldexp(static_cast<float>(kHidden + fraction), exponent - kBias - kFractionBits);
    }

    static Bits rounded(float value) {
        const Bits sign = std::signbit(value) ? 0x80 : 0;
        if (value != value) return sign | kNotANumber;
        if (std::isinf(value)) return sign | kTooLarge;
        int exponent = value == 0 ? kMinExponent : std::max(std::ilogb(value), kMinExponent);
        // Round in units of the last place: nearbyint rounds to nearest, ties to even.
        int units = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), kFractionBits - exponent)));
        if (units == 2 * kHidden) {
            units = kHidden;
            ++exponent;
        }
        if (units < kHidden) return static_cast<Bits>(sign | units);  // a subnormal number, or 0
        const int stored = exponent + kBias;
        if (stored > kTopExponent) return sign | kTooLarge;
        const int magnitude = stored << kFractionBits | (units - kHidden);
        return static_cast<Bits>(sign | (magnitude >= kTooLarge ? kTooLarge : magnitude));
    }

    /// The same, but values that are too large, and infinities, become the largest finite number.
    static Bits saturated(float value) {
        const Bits bits = rounded(value);
        return value == value && (bits & 0x7F) > kLargest ? static_cast<Bits>((bits & 0x80) | kLargest)
                                                          : bits;
    }
};

using Float8E4M3 = Float8<4, 3, false>;
using Float8E5M2 = Float8<5, 2, true>;

}  // namespace argosy
