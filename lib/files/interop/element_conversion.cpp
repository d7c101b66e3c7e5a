#include "interop/element_conversion.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "h5/element_type.h"
#include "kernels/table.h"

namespace argosy::interop {
namespace {

/// Rounds to odd: if x is no float, the result is the neighbouring float whose last bit is 1. For every
/// 16-bit value and every tie, the result lies on the same side as x. Rounding the result to 16 bits
/// therefore equals rounding x directly.
float rounded_to_odd(double x) {
    const auto nearest = static_cast<float>(x);
    if (static_cast<double>(nearest) == x || std::isnan(x)) return nearest;
    auto bits = std::bit_cast<uint32_t>(nearest);
    if (std::abs(static_cast<double>(nearest)) > std::abs(x)) --bits;  // towards zero, also from infinity
    return std::bit_cast<float>(bits | 1);
}

/// Converts to floats. Rounds f64 to odd, so that a later rounding to 16 bits acts like a single rounding.
void to_floats(ElementType from, std::span<const std::byte> in, std::span<float> out) {
    if (from == ElementType::BFloat16) {
        const auto* numbers = reinterpret_cast<const kernels::BFloat16*>(in.data());
        return kernels::table().bf16.widen({std::ssize(out), numbers, out.data()});
    }
    if (from == ElementType::Float16) {
        const auto* numbers = reinterpret_cast<const Float16::Bits*>(in.data());
        std::transform(numbers, numbers + out.size(), out.begin(), Float16::value);
        return;
    }
    if (from == ElementType::Float32) {
        std::memcpy(out.data(), in.data(), in.size());
        return;
    }
    ARGOSY_CHECK(from == ElementType::Float64, "no conversion from {}", static_cast<int>(from));
    const auto* doubles = reinterpret_cast<const double*>(in.data());
    std::transform(doubles, doubles + out.size(), out.begin(), rounded_to_odd);
}

void from_floats(std::span<const float> in, ElementType to, std::span<std::byte> out) {
    if (to == ElementType::BFloat16) {
        auto* numbers = reinterpret_cast<kernels::BFloat16*>(out.data());
        return kernels::table().bf16.narrow({std::ssize(in), in.data(), numbers});
    }
    if (to == ElementType::Float16) {
        std::transform(in.begin(), in.end(), reinterpret_cast<Float16::Bits*>(out.data()), Float16::rounded);
        return;
    }
    if (to == ElementType::Float32) {
        std::memcpy(out.data(), in.data(), in.size_bytes());
        return;
    }
    ARGOSY_CHECK(to == ElementType::Float64, "no conversion to {}", static_cast<int>(to));
    std::copy(in.begin(), in.end(), reinterpret_cast<double*>(out.data()));
}

void doubles_to_floats(std::span<const std::byte> in, std::span<std::byte> out) {
    const auto* doubles = reinterpret_cast<const double*>(in.data());
    auto* floats = reinterpret_cast<float*>(out.data());
    for (size_t i = 0; i < out.size() / sizeof(float); ++i) floats[i] = static_cast<float>(doubles[i]);
}

/// Counts the elements whose exponent bits are all 1; `ones` is the mask of these bits.
template <class Bits>
int64_t count_exponents(std::span<const std::byte> elements, Bits ones) {
    const std::span bits(reinterpret_cast<const Bits*>(elements.data()), elements.size() / sizeof(Bits));
    return std::ranges::count_if(bits, [&](Bits each) { return (each & ones) == ones; });
}

}  // namespace

void convert_elements(ElementType from, std::span<const std::byte> in, ElementType to,
                      std::span<std::byte> out) {
    const size_t in_bytes = size_bytes(from), out_bytes = size_bytes(to), count = in.size() / in_bytes;
    ARGOSY_CHECK(count * out_bytes == out.size(), "{} elements into {} bytes", count, out.size());
    if (from == to) {
        if (in.data() != out.data()) std::memcpy(out.data(), in.data(), in.size());
        return;
    }
    ARGOSY_CHECK(is_floating(from) && is_floating(to), "{} as {}", h5::name(from), h5::name(to));
    if (from == ElementType::Float64 && to == ElementType::Float32) return doubles_to_floats(in, out);
    std::array<float, 2048> floats;
    for (size_t begin = 0; begin < count; begin += floats.size()) {
        const size_t some = std::min(floats.size(), count - begin);
        const std::span part = std::span(floats).first(some);
        to_floats(from, in.subspan(begin * in_bytes, some * in_bytes), part);
        from_floats(part, to, out.subspan(begin * out_bytes, some * out_bytes));
    }
}

int64_t num_not_finite(ElementType type, std::span<const std::byte> elements) {
    switch (type) {
        case ElementType::Float64:
            return count_exponents<uint64_t>(elements, 0x7ff0'0000'0000'0000);
        case ElementType::Float32:
            return count_exponents<uint32_t>(elements, 0x7f80'0000);
        case ElementType::BFloat16:
            return count_exponents<uint16_t>(elements, 0x7f80);
        case ElementType::Float16:
            return count_exponents<uint16_t>(elements, 0x7c00);
        default:
            return 0;
    }
}

}  // namespace argosy::interop
