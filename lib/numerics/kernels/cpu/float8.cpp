// Casts to float8 and back. The loops have no branches, so that the compiler makes vector code of them.
#include "kernels/float8.h"

#include "kernels/cpu/kernels.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

struct E4M3 {
    static constexpr int kFractionBits = 3, kBias = 7;
    static constexpr float kLargest = 448, kSmallestNormal = 0x1p-6F;
};
struct E5M2 {
    static constexpr int kFractionBits = 2, kBias = 15;
    static constexpr float kLargest = 57344, kSmallestNormal = 0x1p-14F;
};

constexpr uint32_t kInfinity = 0x7F800000;
constexpr uint8_t kNotANumber = 0x7F;

template <class Format>
uint8_t cast(float x) {
    constexpr int kDropped = 23 - Format::kFractionBits;  // bits of the fraction
    constexpr auto kLargest = __builtin_bit_cast(uint32_t, Format::kLargest);
    constexpr auto kSmallestNormal = __builtin_bit_cast(uint32_t, Format::kSmallestNormal);
    // A number whose last bit in fp32 is the format's smallest number: fp32 rounds a sum with it as the
    // format rounds subnormal numbers.
    constexpr float kRounder = Format::kSmallestNormal * (1 << kDropped);
    const auto bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t unsigned_bits = bits & 0x7FFFFFFF;
    const uint32_t size = unsigned_bits < kLargest ? unsigned_bits : kLargest;
    const uint32_t half = (1U << (kDropped - 1)) - 1 + (size >> kDropped & 1);
    const uint32_t normal =
        ((size + half) >> kDropped) - (uint32_t{127 - Format::kBias} << Format::kFractionBits);
    const uint32_t subnormal = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, size) + kRounder) -
                               __builtin_bit_cast(uint32_t, kRounder);
    const uint32_t rounded = size < kSmallestNormal ? subnormal : normal;
    const uint32_t found = unsigned_bits > kInfinity ? kNotANumber : rounded;
    return static_cast<uint8_t>((bits >> 24 & 0x80) | found);
}

template <class Format>
uint16_t widened(uint8_t bits) {
    constexpr float kUnit = Format::kSmallestNormal / (1 << Format::kFractionBits);
    const uint32_t size = bits & 0x7F;
    const uint32_t normal = (size << (7 - Format::kFractionBits)) + ((127 - Format::kBias) << 7);
    const uint32_t subnormal = __builtin_bit_cast(uint32_t, static_cast<float>(size) * kUnit) >> 16;
    // The largest exponent of E5M2 has infinity and NaN; of E4M3 one number is NaN.
    constexpr uint32_t kFirstNonfinite = Format::kFractionBits == 3 ? 0x7F : 0x7C;
    const uint32_t nonfinite = size == 0x7C ? 0x7F80 : 0x7FC0;
    const uint32_t number = size < (1U << Format::kFractionBits) ? subnormal : normal;
    return static_cast<uint16_t>((bits & 0x80U) << 8 | (size < kFirstNonfinite ? number : nonfinite));
}

float value_of(float x) { return x; }
float value_of(BFloat16 x) { return __builtin_bit_cast(float, uint32_t{x.bits} << 16); }

/// Magnitudes compare as their bits do, and those of NaN are the largest.
uint32_t magnitude(float x) { return __builtin_bit_cast(uint32_t, x) & 0x7FFFFFFF; }
uint16_t magnitude(BFloat16 x) { return x.bits & 0x7FFF; }
float from_magnitude(uint32_t bits, float) { return __builtin_bit_cast(float, bits); }
float from_magnitude(uint16_t bits, BFloat16) { return value_of(BFloat16{bits}); }

/// largest[i] = the larger one of largest[i] and |x[i]|.
template <class T>
void raise_to(float* largest, const T* x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t found = magnitude(value_of(x[i])), before = __builtin_bit_cast(uint32_t, largest[i]);
        largest[i] = __builtin_bit_cast(float, found > before ? found : before);
    }
}

template <class T>
float largest_of(const T* x, int64_t count, float before) {
    decltype(magnitude(*x)) largest = 0;
    for (int64_t i = 0; i < count; ++i) {
        const auto found = magnitude(x[i]);
        largest = found > largest ? found : largest;
    }
    const float found = from_magnitude(largest, T{});
    return magnitude(found) > magnitude(before) ? found : before;
}

template <class Format, class T>
void cast_row(const CastToFloat8<T>& args, int64_t row) {
    const Grouped<T>& matrix = args.matrix;
    const T* x = matrix.x + row * matrix.row_stride;
    const float* factors = args.factors + row / matrix.group_rows * args.factor_stride;
    uint8_t* values = args.values + row * args.value_stride;
    if (matrix.group_columns == 1) {
        for (int64_t i = 0; i < matrix.row_size; ++i) values[i] = cast<Format>(value_of(x[i]) * factors[i]);
        return;
    }
    for (int64_t first = 0; first < matrix.row_size; first += matrix.group_columns) {
        const float factor = factors[first / matrix.group_columns];
        for (int64_t i = first; i < first + matrix.group_columns; ++i) {
            values[i] = cast<Format>(value_of(x[i]) * factor);
        }
    }
}

}  // namespace

template <class T>
void largest_magnitudes(const LargestMagnitudes<T>& args) {
    const Grouped<T>& matrix = args.matrix;
    const int64_t num_groups = matrix.row_size / matrix.group_columns;
    for (int64_t row = 0; row < matrix.num_rows; ++row) {
        const T* x = matrix.x + row * matrix.row_stride;
        float* largest = args.largest + row / matrix.group_rows * args.largest_stride;
        if (row % matrix.group_rows == 0) {
            for (int64_t i = 0; i < num_groups; ++i) largest[i] = 0;
        }
        if (matrix.group_columns == 1) {
            raise_to(largest, x, matrix.row_size);
            continue;
        }
        for (int64_t i = 0; i < num_groups; ++i) {
            largest[i] = largest_of(x + i * matrix.group_columns, matrix.group_columns, largest[i]);
        }
    }
}

template <class T>
void cast_to_float8(const CastToFloat8<T>& args) {
    for (int64_t row = 0; row < args.matrix.num_rows; ++row) {
        args.type == Float8Type::E4M3 ? cast_row<E4M3>(args, row) : cast_row<E5M2>(args, row);
    }
}

void widen_float8(const WidenFloat8& args) {
    if (args.type == Float8Type::E4M3) {
        for (int64_t i = 0; i < args.count; ++i) args.to[i].bits = widened<E4M3>(args.from[i]);
    } else {
        for (int64_t i = 0; i < args.count; ++i) args.to[i].bits = widened<E5M2>(args.from[i]);
    }
}

template void largest_magnitudes(const LargestMagnitudes<float>&);
template void largest_magnitudes(const LargestMagnitudes<BFloat16>&);
template void cast_to_float8(const CastToFloat8<float>&);
template void cast_to_float8(const CastToFloat8<BFloat16>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
