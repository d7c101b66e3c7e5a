// Building blocks of kernels: packs of elements, and sums over the threads of a warp or block. A pack has 16
// bytes, the maximum that a thread loads with one instruction.
//
// A kernel is a template of the number of elements that a thread processes at a time: a pack, or 1 where rows
// or pointers are not multiples of 16 bytes.
#pragma once

#include "kernels/cuda/machine.cuh"

namespace argosy::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;

template <class T>
inline constexpr int kPack = 16 / sizeof(T);

/// kCount adjacent elements, widened to floats.
template <int kCount>
struct Floats {
    float values[kCount];
    __device__ float& operator[](int i) { return values[i]; }
    __device__ float operator[](int i) const { return values[i]; }
};

/// kCount adjacent elements as memory holds them: one element, 8 bytes, or a multiple of 16 bytes. Elements
/// are kept in words, because a two-byte element in a register of its own would take four bytes.
template <class T, int kCount>
struct Elements {
    static constexpr int kPerWord = 4 / sizeof(T), kWords = (kCount + kPerWord - 1) / kPerWord;
    static_assert(kCount == 1 || kWords == 2 || kWords % 4 == 0);
    uint32_t words[kWords];
};

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(BFloat16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }

__device__ inline uint32_t word_of(float x) { return __float_as_uint(x); }
__device__ inline uint32_t word_of(BFloat16 x) { return x.bits; }
__device__ inline uint32_t word_of(uint8_t x) { return x; }

/// Element i of a word, widened to a float.
__device__ inline float widened(const float*, uint32_t word, int) { return __uint_as_float(word); }
__device__ inline float widened(const BFloat16*, uint32_t word, int i) {
    return __uint_as_float(i == 0 ? word << 16 : word & 0xffff0000);
}

/// Narrows x[i], and x[i + 1] where two elements share a word, into a word.
template <int kCount>
__device__ uint32_t narrow_word(const float*, const Floats<kCount>& x, int i) {
    return __float_as_uint(x[i]);
}
template <int kCount>
__device__ uint32_t narrow_word(const BFloat16*, const Floats<kCount>& x, int i) {
    return round_to_bfloat16(x[i], kCount == 1 ? 0 : x[i + 1]);
}

template <class T, int kCount>
__device__ Floats<kCount> widened(const Elements<T, kCount>& x) {
    Floats<kCount> wide;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        wide[i] = widened(static_cast<const T*>(nullptr), x.words[i / x.kPerWord], i % x.kPerWord);
    }
    return wide;
}

/// Rounds to nearest, ties to even.
template <class T, int kCount>
__device__ Elements<T, kCount> narrowed(const Floats<kCount>& x) {
    Elements<T, kCount> narrow;
#pragma unroll
    for (int i = 0; i < narrow.kWords; ++i) {
        narrow.words[i] = narrow_word(static_cast<const T*>(nullptr), x, i * narrow.kPerWord);
    }
    return narrow;
}

template <int kCount, class T>
__device__ Elements<T, kCount> load_elements(const T* from) {
    Elements<T, kCount> x;
    if constexpr (kCount == 1) {
        x.words[0] = word_of(*from);
    } else if constexpr (x.kWords == 2) {
        const uint2 bytes = load_8_bytes(from);
        x.words[0] = bytes.x, x.words[1] = bytes.y;
    } else {
#pragma unroll
        for (int i = 0; i < x.kWords; i += 4) {
            const uint4 bytes = load_16_bytes(from + i * x.kPerWord);
            x.words[i] = bytes.x, x.words[i + 1] = bytes.y, x.words[i + 2] = bytes.z,
            x.words[i + 3] = bytes.w;
        }
    }
    return x;
}

__device__ inline void store_element(float* to, uint32_t word) { *to = __uint_as_float(word); }
__device__ inline void store_element(BFloat16* to, uint32_t word) { to->bits = static_cast<uint16_t>(word); }

template <int kCount, class T>
__device__ void store(T* to, const Elements<T, kCount>& x) {
    if constexpr (kCount == 1) {
        store_element(to, x.words[0]);
    } else if constexpr (x.kWords == 2) {
        store_8_bytes(to, {x.words[0], x.words[1]});
    } else {
#pragma unroll
        for (int i = 0; i < x.kWords; i += 4) {
            store_16_bytes(to + i * x.kPerWord, {x.words[i], x.words[i + 1], x.words[i + 2], x.words[i + 3]});
        }
    }
}

/// Stores to block_memory().
template <int kCount, class T>
__device__ void store_in_block(T* to, const Elements<T, kCount>& x) {
    if constexpr (kCount == 1) {
        store_element(to, x.words[0]);
    } else {
        static_assert(x.kWords == 4);
        store_16_bytes_in_block(to, {x.words[0], x.words[1], x.words[2], x.words[3]});
    }
}

template <int kCount, class T>
__device__ Floats<kCount> load(const T* from) {
    return widened(load_elements<kCount>(from));
}
template <int kCount, class T>
__device__ void store(T* to, const Floats<kCount>& x) {
    store(to, narrowed<T>(x));
}

/// Makes the compiler recompute values that it derived from these elements, instead of keeping the values in
/// registers.
template <class T, int kCount>
__device__ void keep_narrow(Elements<T, kCount>& x) {
#pragma unroll
    for (int i = 0; i < x.kWords; ++i) forget_origin(x.words[i]);
}

/// Returns the sum over each group of kLanes adjacent lanes in each of these lanes. REQUIRES: all lanes of
/// the warp call warp_sum().
template <int kLanes = kWarp, class Number>
__device__ Number warp_sum(Number x) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(kAllLanes, x, distance);
    }
    return x;
}

/// Sums over a block, any number of times. Each thread gets the sum. A sum takes one barrier, because sums
/// alternate between two buffers: no sum is overwritten while a slower thread still reads it.
template <int kThreads, class Number = float>
class BlockSum {
  public:
    static constexpr int kWarps = kThreads / kWarp;
    using Memory = Shared<Number, 2 * kWarps>;  // __shared__, used by this object alone

    __device__ explicit BlockSum(Memory& memory) : memory_(memory) {}

    __device__ Number operator()(Number x) {
        static_assert(kThreads % kWarp == 0);
        x = warp_sum(x);
        if constexpr (kWarps == 1) return x;
        if (threadIdx.x % kWarp == 0) memory_[offset_ + threadIdx.x / kWarp] = x;
        __syncthreads();
        Number sum = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) sum += memory_[offset_ + warp];
        offset_ = kWarps - offset_;
        return sum;
    }

  private:
    Memory& memory_;
    int offset_ = 0;
};

/// The larger one of two magnitudes, which are the bits of fp32 numbers without their sign. NaN is larger
/// than all others.
__device__ inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
__device__ inline uint32_t magnitude_of(float x) { return __float_as_uint(x) & 0x7fffffff; }

/// Raises *largest to the largest magnitude that the threads of a block include; does nothing unless kWanted.
/// A block first reads *largest and calls atomicMax() only if its own magnitude is larger, because an H200
/// took 85 us for 32,768 calls on one number, with reads that take 67. REQUIRES: all threads call raise(),
/// once.
template <int kThreads, bool kWanted = true>
class LargestOfBlock {
  public:
    __device__ explicit LargestOfBlock(float* largest) : largest_(largest) {
        if (kWanted && threadIdx.x == 0) earlier_ = *reinterpret_cast<const volatile uint32_t*>(largest);
    }
    template <class T, int kCount>
    __device__ void include(const Elements<T, kCount>& x) {
        if (!kWanted) return;
        const auto numbers = widened(x);
#pragma unroll
        for (int k = 0; k < kCount; ++k) magnitude_ = larger(magnitude_, magnitude_of(numbers[k]));
    }
    template <class T, int kCount>
    __device__ void store_and_include(T* to, const Elements<T, kCount>& x) {
        include(x);
        store(to, x);
    }
    __device__ void raise() {
        if constexpr (kWanted) {
            __shared__ Shared<uint32_t, kThreads / kWarp> parts;
#pragma unroll
            for (int distance = kWarp / 2; distance > 0; distance /= 2) {
                magnitude_ = larger(magnitude_, __shfl_xor_sync(kAllLanes, magnitude_, distance));
            }
            if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = magnitude_;
            __syncthreads();
            if (threadIdx.x > 0) return;
#pragma unroll
            for (int i = 1; i < kThreads / kWarp; ++i) magnitude_ = larger(magnitude_, parts[i]);
            if (magnitude_ > earlier_) atomicMax(reinterpret_cast<unsigned*>(largest_), magnitude_);
        }
    }

  private:
    float* largest_;
    uint32_t earlier_ = 0, magnitude_ = 0;
};

/// Whether rows of `row_size` elements from each pointer on can be read in packs: the row size and all
/// pointers are multiples of 16 bytes. A null pointer counts as aligned.
template <class T, class... Pointers>
bool in_packs(int64_t row_size, const Pointers*... pointers) {
    uintptr_t all = static_cast<uintptr_t>(row_size) * sizeof(T);
    ((all |= reinterpret_cast<uintptr_t>(pointers)), ...);
    return all % 16 == 0;
}

}  // namespace argosy::kernels::cuda
