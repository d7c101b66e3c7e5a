// GPU kernels on a CPU: the CUDA keywords and functions of .cu files as plain C++. It is included before
// everything else when tests compile lib/numerics/kernels/cuda; its own machine.cuh replaces the one there.
// A launch runs at once, on the calling thread, one block after the other, whatever its stream. The threads
// of a block are fibers; each runs until it reaches a barrier or a shuffle. The emulator exposes errors that
// a GPU may hide: memory shared by a block holds NaN before each block, threads run in either order, and
// blocks in any order. A launch throws RunError with its kernel's name if not all threads of a block reach
// the same barrier, if not all lanes of a mask reach a shuffle, or if an access of 8 or 16 bytes is not
// aligned to its size.
#pragma once

#include <math.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    unsigned x, y, z;
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct uint2 {
    uint32_t x, y;
};

// Indices of the running thread.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace argosy::testing {

enum class Order { Forwards, Backwards };

/// Settings that a test may change.
struct EmulatedCuda {
    int num_multiprocessors = 3;
    Order threads = Order::Forwards;
    uint64_t block_seed = 0;  // seed of the order in which blocks run; 0: by their numbers
    int max_shared_bytes = 32 << 10;

    /// What packs have moved from and to the device's memory. Loads and stores of single elements do not
    /// count.
    int64_t bytes_loaded = 0, bytes_stored = 0;
};
EmulatedCuda& emulated_cuda();

namespace emulated {

void launch(const char* kernel, dim3 blocks, int threads, int shared_bytes,
            const std::function<void()>& body);

/// Aborts the launch. Called by a kernel's thread.
[[noreturn]] void fail(const char* what);
inline void check_aligned(const void* pointer, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0)
        fail("bytes are loaded or stored that are not aligned");
}

void barrier(const std::source_location& place);
/// Returns the values of all lanes of the warp; lanes outside the mask have arbitrary values.
const uint64_t* exchange(unsigned mask, uint64_t value);
int lane();

/// Fills this memory with NaN before every block from now on.
void share(void* memory, size_t bytes);
bool is_shared(const void* memory);
void* block_memory();

template <class T>
T shuffled(unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    const uint64_t* all = exchange(mask, bits);
    if ((mask >> source & 1) == 0) fail("a shuffle reads a lane outside its mask");
    std::memcpy(&value, &all[source], sizeof(T));
    return value;
}

}  // namespace emulated
}  // namespace argosy::testing

inline void __syncthreads(std::source_location place = std::source_location::current()) {
    argosy::testing::emulated::barrier(place);
}

// A warp in groups of `width` lanes; a source outside the group gives the lane's own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    const int group = argosy::testing::emulated::lane() / width * width;
    return argosy::testing::emulated::shuffled(mask, value, group + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
    const int lane = argosy::testing::emulated::lane(), source = lane ^ lanes;
    return argosy::testing::emulated::shuffled(mask, value, source / width == lane / width ? source : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    const uint64_t* all = argosy::testing::emulated::exchange(mask, predicate != 0);
    unsigned bits = 0;
    for (int lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1) != 0 && all[lane] != 0) bits |= 1U << lane;
    }
    return bits;
}
inline void __syncwarp(unsigned mask = 0xffffffff) { argosy::testing::emulated::exchange(mask, 0); }
/// The lanes of the mask that have the same value.
inline unsigned __match_any_sync(unsigned mask, int value) {
    const uint64_t own = static_cast<unsigned>(value), *all = argosy::testing::emulated::exchange(mask, own);
    unsigned bits = 0;
    for (int lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1) != 0 && all[lane] == own) bits |= 1U << lane;
    }
    return bits;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
    const uint64_t* all = argosy::testing::emulated::exchange(mask, value);
    for (int lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1) != 0) value = std::max(value, static_cast<unsigned>(all[lane]));
    }
    return value;
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) { return ~__reduce_max_sync(mask, ~value); }

// Arithmetic. The compiler does not contract operations here, so plain operations round separately.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float rsqrtf(float x) { return 1.0F / sqrtf(x); }
/// Zero for divisors from 2^126 on, as CUDA documents.
inline float __fdividef(float a, float b) {
    const float size = fabsf(b);
    return size > 0x1p126F && size <= 0x1.fffffep127F ? a * 0.0F : a / b;
}
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
template <class Number>
Number atomicMax(Number* at, std::type_identity_t<Number> x) {
    const Number before = *at;
    *at = std::max(before, x);
    return before;
}
/// Byte i of the result is the byte of x (0 to 3) or y (4 to 7) that digit i of `bytes` names.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned bytes) {
    const uint64_t both = x | uint64_t{y} << 32;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= (both >> 8 * (bytes >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
