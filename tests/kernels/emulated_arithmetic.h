// The arithmetic of bf16 in AVX512_BF16 and AMX, as Intel's manual has it: fused multiply-adds of floats,
// rounded to nearest, that take subnormals for zero and give zero for them, whatever the mode of the
// processor.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
inline float widened(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

inline float multiply_add_flushed(BFloat16 a, BFloat16 b, float sum) {
    return flushed(std::fma(flushed(widened(a)), flushed(widened(b)), flushed(sum)));
}

}  // namespace argosy::kernels::ARGOSY_VARIANT
