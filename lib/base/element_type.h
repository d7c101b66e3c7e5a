// The element types that collectives and benchmarks move and reduce in memory, without tensors.
#pragma once

#include <cstddef>

namespace argosy {

/// The order is that of nccl-tests' names.
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
    Float8E5M2
};

constexpr size_t size_bytes(ElementType type) {
    constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return kSizes[static_cast<int>(type)];
}

}  // namespace argosy
