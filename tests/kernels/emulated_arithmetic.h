// bf16 arithmetic of AVX512_BF16 and AMX, as in Intel's manual: fused multiply-adds of floats, rounded to
// nearest. Subnormal inputs count as zero and subnormal results become zero, in every mode of the CPU.
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
