// Kernels for GPUs on a processor: what .cu files say in CUDA's words, as plain C++. It is included before
// everything else where tests compile lib/kernels/cuda; its own machine.cuh takes the place of the one there.
//
// A launch runs at once, on the calling thread, one block after the other, whatever its stream. The threads
// of a block are fibers, each of which runs until it meets a barrier or a shuffle. What a GPU would not
// always show is made to show: memory shared by a block holds NaN before each, threads run in either order
// and blocks in any. A launch throws RunError, naming its kernel, where not all threads of a block come to
// the same barrier, not all lanes of a mask to a shuffle, or where 8 or 16 bytes at once are not aligned to
// as many.
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
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};

// Of the thread that runs.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace argosy::testing {

enum class Order { Forwards, Backwards };

/// What a test may change.
struct EmulatedCuda {
    int num_multiprocessors = 3;
    Order threads = Order::Forwards;
    uint64_t block_seed = 0;  // of the order in which blocks run; 0: by their numbers
};
EmulatedCuda& emulated_cuda();

namespace emulated {

void launch(const char* kernel, dim3 blocks, int threads, int shared_bytes,
            const std::function<void()>& body);

/// Gives up the launch. Called by a kernel's thread.
[[noreturn]] void fail(const char* what);
inline void check_aligned(const void* pointer, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0)
        fail("bytes are loaded or stored that are not aligned");
}

void barrier(const std::source_location& place);
/// Returns the values of all lanes of the warp; those outside the mask hold anything.
const uint64_t* exchange(unsigned mask, uint64_t value);
int lane();

/// Filled with NaN before every block from now on.
void share(void* memory, size_t bytes);
bool is_shared(const void* memory);
void* dynamic_shared();

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
inline void __syncwarp(unsigned mask = 0xffffffff) { argosy::testing::emulated::exchange(mask, 0); }

// A warp in groups of `width` lanes; what lies outside the group is the lane's own value.
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
template <class T>
T __shfl_down_sync(unsigned mask, T value, int lanes, int width = 32) {
    const int lane = argosy::testing::emulated::lane(), source = lane + lanes;
    return argosy::testing::emulated::shuffled(mask, value, source / width == lane / width ? source : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int lanes, int width = 32) {
    const int lane = argosy::testing::emulated::lane(), source = lane - lanes;
    return argosy::testing::emulated::shuffled(mask, value, source >= lane / width * width ? source : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    const uint64_t* all = argosy::testing::emulated::exchange(mask, predicate != 0);
    unsigned bits = 0;
    for (int lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1) != 0 && all[lane] != 0) bits |= 1U << lane;
    }
    return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

// Blocks run one after the other: nothing comes between. Of floats there are none, since their sums would
// depend on the order of blocks.
template <class T>
T atomicAdd(T* to, T value) {
    static_assert(std::is_integral_v<T>, "sums of floats in the order of arrival differ from run to run");
    return std::exchange(*to, *to + value);
}
inline void __threadfence() {}

// Arithmetic. The compiler contracts nothing here, so what rounds on its own is the plain operation.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float rsqrtf(float x) { return 1.0F / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
/// Zero for divisors from 2^126 on, as CUDA says.
inline float __fdividef(float a, float b) {
    const float size = fabsf(b);
    return size > 0x1p126F && size <= 0x1.fffffep127F ? a * 0.0F : a / b;
}
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

template <class T>
T __ldg(const T* from) {
    return *from;
}
template <class T>
T __ldcs(const T* from) {
    return *from;
}
template <class T>
void __stcs(T* to, T value) {
    *to = value;
}
