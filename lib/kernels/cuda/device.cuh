// What kernels are written with: elements in packs of 16 bytes, which is the most that a thread loads at
// once, and sums over the threads of a warp or block.
//
// A kernel is a template of the number of elements that a thread takes at a time: kPack<T>, or 1 where rows
// or pointers are no multiple of 16 bytes.
#pragma once

#include "kernels/cuda/machine.cuh"

namespace argosy::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;

template <class T>
inline constexpr int kPack = 16 / sizeof(T);

/// kCount neighbouring elements, widened.
template <int kCount>
struct Floats {
    float values[kCount];
    __device__ float& operator[](int i) { return values[i]; }
    __device__ float operator[](int i) const { return values[i]; }
};

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(BFloat16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }
__device__ inline float widened(Half x) { return widen_half(x.bits); }

__device__ inline void narrow_to(float* to, float x) { *to = x; }
__device__ inline void narrow_to(BFloat16* to, float x) { to->bits = round_to_bfloat16(x, 0); }
__device__ inline void narrow_to(Half* to, float x) { to->bits = round_to_half(x, 0); }

/// What memory holds after narrow_to.
template <class T>
__device__ float rounded(float x) {
    T narrow;
    narrow_to(&narrow, x);
    return widened(narrow);
}

template <int kCount, class T>
__device__ Floats<kCount> load(const T* from) {
    Floats<kCount> x;
    if constexpr (kCount == 1) {
        x[0] = widened(*from);
    } else {
        static_assert(kCount == kPack<T>);
        const uint4 bytes = load_16_bytes(from);
        T elements[kCount];
        memcpy(elements, &bytes, sizeof bytes);
#pragma unroll
        for (int i = 0; i < kCount; ++i) x[i] = widened(elements[i]);
    }
    return x;
}

__device__ inline uint32_t word_of(const float*, float first, float) { return __float_as_uint(first); }
__device__ inline uint32_t word_of(const BFloat16*, float first, float second) {
    return round_to_bfloat16(first, second);
}
__device__ inline uint32_t word_of(const Half*, float first, float second) {
    return round_to_half(first, second);
}

template <int kCount, class T>
__device__ void store(T* to, const Floats<kCount>& x) {
    if constexpr (kCount == 1) {
        narrow_to(to, x[0]);
    } else {
        static_assert(kCount == kPack<T>);
        constexpr int kPerWord = 4 / sizeof(T), kSecond = kPerWord - 1;
        store_16_bytes(to, {word_of(to, x[0], x[kSecond]), word_of(to, x[kPerWord], x[kPerWord + kSecond]),
                            word_of(to, x[2 * kPerWord], x[2 * kPerWord + kSecond]),
                            word_of(to, x[3 * kPerWord], x[3 * kPerWord + kSecond])});
    }
}

/// The sum over groups of kLanes neighbouring lanes, in each of them, by all lanes of the warp.
template <int kLanes = kWarp>
__device__ float warp_sum(float x) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(kAllLanes, x, distance);
    }
    return x;
}

/// Sums over a block, one after the other, in each of its threads. A barrier each: sums alternate between two
/// places, so that none is written while a slower thread still reads it.
template <int kThreads>
class BlockSum {
  public:
    static constexpr int kWarps = kThreads / kWarp;
    using Memory = Shared<float, 2 * kWarps>;  // __shared__, for this alone

    __device__ explicit BlockSum(Memory& memory) : memory_(memory) {}

    __device__ float operator()(float x) {
        static_assert(kThreads % kWarp == 0);
        x = warp_sum(x);
        if constexpr (kWarps == 1) return x;
        if (threadIdx.x % kWarp == 0) memory_[offset_ + threadIdx.x / kWarp] = x;
        __syncthreads();
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) sum += memory_[offset_ + warp];
        offset_ = kWarps - offset_;
        return sum;
    }

  private:
    Memory& memory_;
    int offset_ = 0;
};

/// Whether all are multiples of 16 bytes: rows of `row_size` elements from each pointer on can be read in
/// packs. Null is one.
template <class T, class... Pointers>
bool in_packs(int64_t row_size, const Pointers*... pointers) {
    uintptr_t all = static_cast<uintptr_t>(row_size) * sizeof(T);
    ((all |= reinterpret_cast<uintptr_t>(pointers)), ...);
    return all % 16 == 0;
}

}  // namespace argosy::kernels::cuda
