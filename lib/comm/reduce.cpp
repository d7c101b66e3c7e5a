#include "comm/reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <type_traits>

#include "base/error.h"

namespace argosy::comm {
namespace {

constexpr int64_t kTile = 1024;  // elements; their sums stay in the L1 cache

/// `count` is a compile-time constant, except for the last tile, because the compiler vectorizes only then.
template <class Element, Reduction kReduction, class Count>
void reduce_tile(Element* out, std::span<const std::byte* const> sources, int64_t begin, Count count) {
    using Sum = std::conditional_t<sizeof(Element) == 2, float, Element>;
    const auto elements = [&](size_t i) { return reinterpret_cast<const Element*>(sources[i]) + begin; };
    Sum sums[kTile];
    const Element* first = elements(0);
    for (int64_t i = 0; i < count; ++i) sums[i] = static_cast<Sum>(first[i]);
    for (size_t source = 1; source < sources.size(); ++source) {
        const Element* more = elements(source);
        for (int64_t i = 0; i < count; ++i) {
            const Sum value = static_cast<Sum>(more[i]);
            sums[i] = kReduction == Reduction::Sum ? sums[i] + value : (value > sums[i] ? value : sums[i]);
        }
    }
    for (int64_t i = 0; i < count; ++i) out[begin + i] = static_cast<Element>(sums[i]);
}

template <class Element, Reduction kReduction>
void reduce_elements(std::byte* to, std::span<const std::byte* const> sources, int64_t bytes) {
    auto* const out = reinterpret_cast<Element*>(to);
    const int64_t count = bytes / static_cast<int64_t>(sizeof(Element));
    int64_t begin = 0;
    for (; begin + kTile <= count; begin += kTile) {
        reduce_tile<Element, kReduction>(out, sources, begin, std::integral_constant<int64_t, kTile>());
    }
    reduce_tile<Element, kReduction>(out, sources, begin, count - begin);
}

using Kernel = void (*)(std::byte*, std::span<const std::byte* const>, int64_t);

struct Kernels {
    at::ScalarType type;
    Kernel sum, max;
};

template <class Element>
constexpr Kernels kernels(at::ScalarType type) {
    return {type, reduce_elements<Element, Reduction::Sum>, reduce_elements<Element, Reduction::Max>};
}

constexpr Kernels kKernels[] = {
    kernels<float>(at::kFloat),    kernels<double>(at::kDouble),
    kernels<int64_t>(at::kLong),   kernels<c10::BFloat16>(at::kBFloat16),
    kernels<c10::Half>(at::kHalf),
};

const Kernels* find(at::ScalarType type) {
    const auto* found = std::find_if(std::begin(kKernels), std::end(kKernels),
                                     [&](const Kernels& k) { return k.type == type; });
    return found == std::end(kKernels) ? nullptr : found;
}

}  // namespace

bool can_reduce(at::ScalarType type) { return find(type) != nullptr; }

void reduce(std::byte* out, std::span<const std::byte* const> sources, int64_t bytes, at::ScalarType type,
            Reduction reduction) {
    const Kernels* kernels_of_type = find(type);
    ARGOSY_CHECK(kernels_of_type, "sums of {}", toString(type));
    const Kernel kernel = reduction == Reduction::Sum ? kernels_of_type->sum : kernels_of_type->max;
    kernel(out, sources, bytes);
}

}  // namespace argosy::comm
