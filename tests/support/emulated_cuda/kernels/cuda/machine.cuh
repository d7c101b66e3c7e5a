// The machine.cuh of the emulator: the same functions on a CPU. See support/emulated_cuda.h.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "base/element_type.h"
#include "kernels/cuda/launch.h"
#include "kernels/types.h"
#include "support/emulated_cuda.h"
#include "support/work_log.h"

#include "kernels/cuda/rounding.cuh"  // after __device__ is defined

namespace argosy::kernels::cuda {

inline constexpr int kCompiledFor = 0;

struct Launch {
    const char* kernel;
    dim3 blocks;
    int threads;
    GpuStream stream;
    int shared_bytes = 0;
};

template <class... Params>
void launch(const Launch& where, void (*kernel)(Params...), std::type_identity_t<Params>... args) {
    if (testing::work_log) {
        testing::note_work((std::string(where.kernel) + ... + testing::text_of_argument(args)));
    }
    testing::emulated::launch(where.kernel, where.blocks, where.threads, where.shared_bytes,
                              [&] { kernel(args...); });
}

template <class T, int kCount>
struct Shared {
    T elements[kCount];
    Shared() { testing::emulated::share(elements, sizeof elements); }
    T& operator[](int i) {
        if (i < 0 || i >= kCount) testing::emulated::fail("an index is past the end of shared memory");
        return elements[i];
    }
};

inline void* block_memory() { return testing::emulated::block_memory(); }
inline void store_16_bytes_in_block(void* to, uint4 bytes) {
    testing::emulated::check_aligned(to, sizeof bytes);
    if (!testing::emulated::is_shared(to))
        testing::emulated::fail("a pack is not stored to the block's memory");
    std::memcpy(to, &bytes, sizeof bytes);
}

template <class Bytes>
Bytes load_aligned(const void* from) {
    testing::emulated::check_aligned(from, sizeof(Bytes));
    if (!testing::emulated::is_shared(from)) testing::emulated_cuda().bytes_loaded += sizeof(Bytes);
    Bytes bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    return bytes;
}
template <class Bytes>
void store_aligned(void* to, const Bytes& bytes) {
    testing::emulated::check_aligned(to, sizeof bytes);
    if (testing::emulated::is_shared(to)) testing::emulated::fail("packs are stored to the block's memory");
    testing::emulated_cuda().bytes_stored += sizeof bytes;
    std::memcpy(to, &bytes, sizeof bytes);
}
inline uint4 load_16_bytes(const void* from) { return load_aligned<uint4>(from); }
inline uint2 load_8_bytes(const void* from) { return load_aligned<uint2>(from); }
inline void store_16_bytes(void* to, uint4 bytes) { store_aligned(to, bytes); }
inline void store_8_bytes(void* to, uint2 bytes) { store_aligned(to, bytes); }

inline void forget_origin(uint32_t&) {}

inline float exp2_approximately(float x) { return x < -126 ? 0 : exp2f(x); }

/// Rounds a float to its upper `32 - kDropped` bits, to nearest, ties to even.
template <int kDropped>
uint32_t rounded_bits(uint32_t bits) {
    const uint32_t half = uint32_t{1} << (kDropped - 1);
    return bits + (half - 1) + (bits >> kDropped & 1);
}
inline uint32_t one_bfloat16(float x) {
    return isnan(x) ? 0x7fff : rounded_bits<16>(std::bit_cast<uint32_t>(x)) >> 16;
}
inline uint32_t round_to_bfloat16(float first, float second) {
    return one_bfloat16(first) | one_bfloat16(second) << 16;
}
inline uint32_t round_to_e4m3(float first, float second) {
    return rounded_to_e4m3(first) | rounded_to_e4m3(second) << 8;
}
inline uint32_t round_to_e5m2(float first, float second) {
    return rounded_to_e5m2(first) | rounded_to_e5m2(second) << 8;
}

}  // namespace argosy::kernels::cuda
