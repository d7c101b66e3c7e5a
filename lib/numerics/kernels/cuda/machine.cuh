// The parts of kernels that only nvcc compiles: launches, memory that a block shares, and instructions that
// C++ cannot express. The tests' emulator has a file of the same name with the same functions, so that all
// other code of the kernels is plain C++.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/rounding.cuh"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

/// The compute capability for which this pass compiles: 900 is 9.0; 0 in the host's pass.
#ifdef __CUDA_ARCH__
inline constexpr int kCompiledFor = __CUDA_ARCH__;
#else
inline constexpr int kCompiledFor = 0;
#endif

struct Launch {
    const char* kernel;  // the kernel's name, for errors
    dim3 blocks;
    int threads;
    GpuStream stream;
    int shared_bytes = 0;  // of block_memory()
};

/// Launches kernel(args...) on the stream; throws RunError if the launch fails.
template <class... Params>
void launch(const Launch& where, void (*kernel)(Params...), std::type_identity_t<Params>... args) {
    if (where.shared_bytes > 0) {
        allow_shared_bytes(where.kernel, reinterpret_cast<const void*>(kernel), where.shared_bytes);
    }
    kernel<<<where.blocks, where.threads, where.shared_bytes, where.stream>>>(args...);
    check_launch(where.kernel, cudaGetLastError());
}

/// Elements that the threads of a block share: `__shared__ Shared<float, 32> sums;`
template <class T, int kCount>
struct Shared {
    T elements[kCount];
    __device__ T& operator[](int i) { return elements[i]; }
};

/// The memory of Launch::shared_bytes, which the threads of a block share.
__device__ inline void* block_memory() {
    extern __shared__ uint4 memory[];
    return memory;
}
/// Stores 16 bytes to block_memory() in one instruction. REQUIRES: the address is a multiple of 16 bytes.
__device__ inline void store_16_bytes_in_block(void* to, uint4 bytes) { *static_cast<uint4*>(to) = bytes; }

/// Loads and stores of 16 or 8 bytes in one instruction. REQUIRES: an address is a multiple of 16 or 8 bytes;
/// stores go to the device's memory, not to the shared memory of a block. Stores are in assembly, because the
/// compiler would split some plain assignments.
__device__ inline uint4 load_16_bytes(const void* from) { return *static_cast<const uint4*>(from); }
__device__ inline uint2 load_8_bytes(const void* from) { return *static_cast<const uint2*>(from); }
__device__ inline void store_16_bytes(void* to, uint4 bytes) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(bytes.x),
                 "r"(bytes.y), "r"(bytes.z), "r"(bytes.w)
                 : "memory");
}
__device__ inline void store_8_bytes(void* to, uint2 bytes) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(bytes.x),
                 "r"(bytes.y)
                 : "memory");
}

/// Hides from the compiler how the word was computed.
__device__ inline void forget_origin(uint32_t& word) { asm volatile("" : "+r"(word)); }

/// 2^x in one instruction, with a relative error up to 2^-22. The result is 0 below -126, and NaN for NaN.
__device__ inline float exp2_approximately(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// Rounds two floats to nearest, ties to even. The first float goes to the low half, which comes first in
/// memory.
__device__ inline uint32_t round_to_bfloat16(float first, float second) {
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
}
/// Rounds two floats to float8, to nearest, ties to even; what is too large becomes the largest number. The
/// first float goes to the low byte.
__device__ inline uint32_t round_to_e4m3(float first, float second) {
#if __CUDA_ARCH__ < 890
    return rounded_to_e4m3(first) | rounded_to_e4m3(second) << 8;
#else
    uint16_t bits;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));
    return bits;
#endif
}
__device__ inline uint32_t round_to_e5m2(float first, float second) {
#if __CUDA_ARCH__ < 890
    return rounded_to_e5m2(first) | rounded_to_e5m2(second) << 8;
#else
    uint16_t bits;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));
    return bits;
#endif
}

}  // namespace argosy::kernels::cuda
