// bf16 products with AMX. The tests run MatrixUnitTile with emulated instructions, as Intel documents them
// (tests/kernels).
#pragma once

#include <type_traits>

#include "kernels/cpu/matrix_unit_tile.h"
#include "kernels/cpu/vector_tile.h"

namespace argosy::kernels::ARGOSY_VARIANT {

/// AMX in inline assembly, because GCC's intrinsics do not take a register's number from a template argument,
/// and do not declare that they read memory.
struct AmxInstructions {
    static void configure(const MatrixUnitShape* shape) {
        asm volatile("ldtilecfg %0" ::"m"(*shape) : "memory");
    }
    static void release() { asm volatile("tilerelease" ::: "memory"); }
    template <int kTo>
    static void zero() {
        asm volatile("tilezero %%tmm%c0" ::"i"(kTo));
    }
    template <int kTo>
    static void load(const void* from, int64_t row_stride_bytes) {
        asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_stride_bytes), "i"(kTo) : "memory");
    }
    template <int kFrom>
    static void store(void* to, int64_t row_stride_bytes) {
        asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_stride_bytes), "i"(kFrom)
                     : "memory");
    }
    /// C += A B over 16 pairs along k. The even and the odd elements are summed separately, from zero; then
    /// their sum is added to C. Rounds to nearest; subnormals count as zero.
    template <int kC, int kA, int kB>
    static void dot() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
    }
};

using FloatTile = VectorTile<FloatWords, MultiplyAdd, 14, 2>;

template <class T>
using TileOf = std::conditional_t<std::is_same_v<T, BFloat16>, MatrixUnitTile<AmxInstructions>, FloatTile>;

}  // namespace argosy::kernels::ARGOSY_VARIANT
