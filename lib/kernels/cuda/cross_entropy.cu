// Softmax cross-entropy on GPUs, with one block for each row. A row of 128k logits in bf16 has 256 KB, so
// that each thread loads several packs of 16 bytes at once.
//
// In each pass an element takes one exponential, and a multiprocessor computes 16 exponentials per cycle. On
// a GPU with 4.8 TB/s, at 2 bytes for each element, the units for exponentials are two thirds busy when
// memory is fully busy.
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 512, kBlocksPerMultiprocessor = 2;
constexpr int kAtOnce = 4;  // packs that a thread loads at once
constexpr float kLowest = -3.4028235e38F, kInfinity = INFINITY;

/// exp(x). The error in fp32 is at most 2 units in the last place, as on CPUs. Narrow types take fewer
/// instructions, and the error is the rounding of x * log2(e), plus 2^-22.
template <class T>
__device__ float exponential(float x) {
    if constexpr (std::is_same_v<T, float>) return expf(x);
    return exp2_approximately(x * 1.44269504F);
}

/// kAtOnce packs of a row for the calling thread. The first pack begins at column `begin`, and each next pack
/// a block's width later.
template <class T, int kCount>
struct Packs {
    static constexpr int kWidth = kThreads * kCount;
    static constexpr int kColumns = kAtOnce * kWidth;  // columns that a block loads at once

    __device__ Packs(const T* row, int64_t begin, int64_t num_columns, float filler) {
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
            const int64_t i = begin + p * kWidth;
            if (i < num_columns) {
                packs[p] = load<kCount>(row + i);
            } else {
#pragma unroll
                for (int k = 0; k < kCount; ++k) packs[p][k] = filler;
            }
        }
    }
    Floats<kCount> packs[kAtOnce];
};

struct RowSums {
    float maximum, exponentials;

    /// The maximum, but never below kLowest, so that columns of -inf add nothing.
    __device__ float shift() const { return fmaxf(maximum, kLowest); }
};

/// The sums of a thread's columns, in one pass. When the maximum rises, the sum so far is scaled down.
template <class T, int kCount>
__device__ RowSums thread_sums(const T* row, int64_t num_columns) {
    RowSums sums = {-kInfinity, 0};
    for (int64_t i = threadIdx.x * kCount; i < num_columns; i += Packs<T, kCount>::kColumns) {
        const Packs<T, kCount> x(row, i, num_columns, -kInfinity);
        const float before = sums.shift();
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) sums.maximum = fmaxf(sums.maximum, x.packs[p][k]);
        }
        const float shift = sums.shift();
        sums.exponentials *= exponential<T>(before - shift);
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) sums.exponentials += exponential<T>(x.packs[p][k] - shift);
        }
    }
    return sums;
}

/// Returns the maximum over the block in each of its threads.
__device__ inline float block_maximum(float x, Shared<float, kThreads / kWarp>& memory) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
    }
    if (threadIdx.x % kWarp == 0) memory[threadIdx.x / kWarp] = x;
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < kThreads / kWarp; ++warp) x = fmaxf(x, memory[warp]);
    return x;
}

/// Returns the sums of the row in each thread of the block. REQUIRES: each thread of the block calls
/// row_sums() once.
template <class T, int kCount>
__device__ RowSums row_sums(const T* row, int64_t num_columns) {
    __shared__ Shared<float, kThreads / kWarp> maxima;
    __shared__ typename BlockSum<kThreads>::Memory memory;
    const RowSums own = thread_sums<T, kCount>(row, num_columns);
    RowSums all = {block_maximum(own.maximum, maxima), 0};
    all.exponentials =
        BlockSum<kThreads>(memory)(own.exponentials * exponential<T>(own.shift() - all.shift()));
    return all;
}

/// `target` is counted from the first of these columns, and may be outside them.
template <class T>
__device__ void write_sums(const SoftmaxSums<T>& args, const RowSums& sums, int64_t target) {
    if (threadIdx.x != 0) return;
    const int64_t row = blockIdx.x;
    const bool present = target >= 0 && target < args.num_columns;
    args.maxima[row] = sums.maximum;
    args.exponentials[row] = sums.exponentials;
    args.target_logits[row] = present ? widened(args.logits[row * args.num_columns + target]) : 0.0F;
}

template <class T, int kCount>
__device__ void write_zeros(T* row, int64_t num_columns) {
    const Floats<kCount> zeros = {};
    for (int64_t i = threadIdx.x * kCount; i < num_columns; i += kThreads * kCount) store(row + i, zeros);
}

/// Runs from the last column to the first, because the cache still holds what was read last.
template <class T, int kCount>
__device__ void write_gradient(T* row, int64_t num_columns, const RowSums& sums, float scale,
                               int64_t target) {
    using Some = Packs<T, kCount>;
    const float factor = scale / sums.exponentials;
    const int64_t last = (num_columns - 1) / Some::kColumns * Some::kColumns;
    for (int64_t begin = last + threadIdx.x * kCount; begin >= 0; begin -= Some::kColumns) {
        Some x(row, begin, num_columns, 0);
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
            const int64_t i = begin + p * Some::kWidth;
            if (i >= num_columns) continue;
#pragma unroll
            for (int k = 0; k < kCount; ++k) {
                const float softmax = exponential<T>(x.packs[p][k] - sums.maximum) * factor;
                x.packs[p][k] = i + k == target ? softmax - scale : softmax;
            }
            store(row + i, x.packs[p]);
        }
    }
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor) sums_kernel(SoftmaxSums<T> args) {
    const int64_t row = blockIdx.x;
    const RowSums sums = row_sums<T, kCount>(args.logits + row * args.num_columns, args.num_columns);
    write_sums(args, sums, args.targets[row] - args.begin);
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    gradient_kernel(CrossEntropyGradient<T> args) {
    const int64_t row = blockIdx.x, target = args.targets[row];
    T* logits = args.logits + row * args.num_columns;
    if (target < 0) return write_zeros<T, kCount>(logits, args.num_columns);
    write_gradient<T, kCount>(logits, args.num_columns, {args.maxima[row], args.exponentials[row]},
                              *args.scale, target - args.begin);
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor) both_kernel(CrossEntropy<T> args) {
    const int64_t row = blockIdx.x, target = args.targets[row];
    T* logits = args.logits + row * args.num_columns;
    const RowSums sums = row_sums<T, kCount>(logits, args.num_columns);
    write_sums<T>({.num_rows = args.num_rows,
                   .num_columns = args.num_columns,
                   .begin = 0,
                   .logits = args.logits,
                   .targets = args.targets,
                   .maxima = args.maxima,
                   .exponentials = args.exponentials,
                   .target_logits = args.target_logits},
                  sums, target);
    __syncthreads();  // the target's logit is read before it becomes a gradient
    if (target < 0) return write_zeros<T, kCount>(logits, args.num_columns);
    write_gradient<T, kCount>(logits, args.num_columns, sums, *args.scale, target);
}

/// Launches a block for each row, with the kernel `wide` if all rows begin at multiples of 16 bytes, else
/// with `narrow`.
template <class T, class Args>
void for_each_row(const char* name, void (*wide)(Args), void (*narrow)(Args), const Args& args,
                  GpuStream stream) {
    if (args.num_rows == 0) return;
    launch({name, static_cast<unsigned>(args.num_rows), kThreads, stream},
           in_packs<T>(args.num_columns, args.logits) ? wide : narrow, args);
}

}  // namespace

template <class T>
void softmax_sums(const SoftmaxSums<T>& args, GpuStream stream) {
    for_each_row<T>("softmax_sums", sums_kernel<T, kPack<T>>, sums_kernel<T, 1>, args, stream);
}

template <class T>
void cross_entropy_gradient(const CrossEntropyGradient<T>& args, GpuStream stream) {
    for_each_row<T>("cross_entropy_gradient", gradient_kernel<T, kPack<T>>, gradient_kernel<T, 1>, args,
                    stream);
}

template <class T>
void cross_entropy(const CrossEntropy<T>& args, GpuStream stream) {
    for_each_row<T>("cross_entropy", both_kernel<T, kPack<T>>, both_kernel<T, 1>, args, stream);
}

template void softmax_sums(const SoftmaxSums<float>&, GpuStream);
template void softmax_sums(const SoftmaxSums<BFloat16>&, GpuStream);
template void softmax_sums(const SoftmaxSums<Half>&, GpuStream);
template void cross_entropy_gradient(const CrossEntropyGradient<float>&, GpuStream);
template void cross_entropy_gradient(const CrossEntropyGradient<BFloat16>&, GpuStream);
template void cross_entropy_gradient(const CrossEntropyGradient<Half>&, GpuStream);
template void cross_entropy(const CrossEntropy<float>&, GpuStream);
template void cross_entropy(const CrossEntropy<BFloat16>&, GpuStream);
template void cross_entropy(const CrossEntropy<Half>&, GpuStream);

}  // namespace argosy::kernels::cuda
