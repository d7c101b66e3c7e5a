// Softmax cross-entropy on GPUs, with one block for each row. A row of 152k logits in bf16 has 304 KB, so
// that each thread loads several packs of 16 bytes at once.
//
// The kernel that computes sums and gradient together reads each row once: in its first pass, it keeps as
// many of the row's first columns as the block's memory holds, 226 KB on an H100. The second pass starts with
// the last columns, which the L2 cache still holds: 80 KB for each multiprocessor, 11 MB in all.
//
// In each pass an element takes one exponential, and a multiprocessor computes 16 exponentials per cycle. On
// a GPU with 4.8 TB/s, at 2 bytes for each element, the units for exponentials are two thirds busy when
// memory is fully busy.
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreadsPerMultiprocessor = 1024;
constexpr int kAtOnce = 4;  // packs that a thread loads at once
constexpr float kLowest = -3.4028235e38F, kInfinity = INFINITY;

/// How a block reads a row: each thread loads kAtOnce packs of kCount elements at once.
template <class T_, int kCount_, int kThreads_>
struct Shape {
    using T = T_;
    static constexpr int kCount = kCount_, kThreads = kThreads_;
    static constexpr int kBlocksPerMultiprocessor = kThreadsPerMultiprocessor / kThreads;
    static constexpr int kWidth = kThreads * kCount;   // columns between two packs of a thread
    static constexpr int kColumns = kAtOnce * kWidth;  // columns that a block loads at once
};

/// exp(x). The error in fp32 is at most 2 units in the last place, as on CPUs. Narrow types take fewer
/// instructions, and the error is the rounding of x * log2(e), plus 2^-22.
template <class T>
__device__ float exponential(float x) {
    if constexpr (std::is_same_v<T, float>) return expf(x);
    return exp2_approximately(x * 1.44269504F);
}

/// A row of logits. The block's memory has its first num_kept columns after the first pass.
template <class T>
struct Row {
    const T* logits;
    int64_t num_columns;
    T* kept = nullptr;
    int64_t num_kept = 0;
};

enum class Pass { First, Second };

/// Loads a pack. The second pass must load it in the same thread as the first, which keeps it.
template <int kCount, Pass kPass, class T>
__device__ Elements<T, kCount> load_pack(const Row<T>& row, int64_t column) {
    const bool kept = column < row.num_kept;
    if (kPass == Pass::Second && kept) return load_elements<kCount>(row.kept + column);
    const auto pack = load_elements<kCount>(row.logits + column);
    if (kPass == Pass::First && kept) store_in_block(row.kept + column, pack);
    return pack;
}

/// kAtOnce packs of a row for the calling thread. The first pack begins at column `begin`, and each next pack
/// a block's width later.
template <class Shape, Pass kPass>
struct Packs {
    static constexpr int kCount = Shape::kCount;

    __device__ Packs(const Row<typename Shape::T>& row, int64_t begin, float filler) {
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
            const int64_t i = begin + p * Shape::kWidth;
            if (i < row.num_columns) {
                packs[p] = widened(load_pack<kCount, kPass>(row, i));
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

/// The sums of the columns of thread `thread`, in one pass. When the maximum rises, the sum so far is scaled
/// down.
template <class Shape>
__device__ RowSums thread_sums(const Row<typename Shape::T>& row, int thread) {
    using T = typename Shape::T;
    constexpr int kCount = Shape::kCount;
    RowSums sums = {-kInfinity, 0};
    for (int64_t i = thread * kCount; i < row.num_columns; i += Shape::kColumns) {
        const Packs<Shape, Pass::First> x(row, i, -kInfinity);
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
template <int kThreads>
__device__ float block_maximum(float x, Shared<float, kThreads / kWarp>& memory) {
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

/// Returns the sums of the row in each thread of the block, with the same bits for each kFold: a block has
/// Shape::kThreads / kFold threads, and each does the work of kFold threads, one after the other. REQUIRES:
/// each thread of the block calls row_sums() once.
template <class Shape, int kFold = 1>
__device__ RowSums row_sums(const Row<typename Shape::T>& row) {
    constexpr int kThreads = Shape::kThreads / kFold, kWarps = kThreads / kWarp;
    __shared__ Shared<float, kWarps> maxima;
    __shared__ Shared<float, kFold * kWarps> sums_of_warps;
    RowSums own[kFold], all = {-kInfinity, 0};
#pragma unroll
    for (int i = 0; i < kFold; ++i) {
        own[i] = thread_sums<Shape>(row, threadIdx.x + i * kThreads);
        all.maximum = fmaxf(all.maximum, own[i].maximum);
    }
    all.maximum = block_maximum<kThreads>(all.maximum, maxima);
#pragma unroll
    for (int i = 0; i < kFold; ++i) {
        const float scale = exponential<typename Shape::T>(own[i].shift() - all.shift());
        const float sum = warp_sum(own[i].exponentials * scale);
        if (threadIdx.x % kWarp == 0) sums_of_warps[i * kWarps + threadIdx.x / kWarp] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < kFold * kWarps; ++warp) all.exponentials += sums_of_warps[warp];
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

template <class Shape>
__device__ void write_zeros(typename Shape::T* row, int64_t num_columns) {
    const Floats<Shape::kCount> zeros = {};
    for (int64_t i = threadIdx.x * Shape::kCount; i < num_columns; i += Shape::kWidth) store(row + i, zeros);
}

/// Writes the gradient over the logits, from the last column to the first, because the cache still holds what
/// was read last.
template <class Shape>
__device__ void write_gradient(typename Shape::T* logits, const Row<typename Shape::T>& row,
                               const RowSums& sums, float scale, int64_t target) {
    constexpr int kCount = Shape::kCount;
    const float factor = scale / sums.exponentials;
    const int64_t last = (row.num_columns - 1) / Shape::kColumns * Shape::kColumns;
    for (int64_t begin = last + threadIdx.x * kCount; begin >= 0; begin -= Shape::kColumns) {
        Packs<Shape, Pass::Second> x(row, begin, 0);
#pragma unroll
        for (int p = 0; p < kAtOnce; ++p) {
            const int64_t i = begin + p * Shape::kWidth;
            if (i >= row.num_columns) continue;
#pragma unroll
            for (int k = 0; k < kCount; ++k) {
                const float softmax = exponential<typename Shape::T>(x.packs[p][k] - sums.maximum) * factor;
                x.packs[p][k] = i + k == target ? softmax - scale : softmax;
            }
            store(logits + i, x.packs[p]);
        }
    }
}

/// Two blocks share a multiprocessor where the kernel keeps no row: one loads while the other adds up its
/// threads' sums, or starts.
constexpr int kThreadsWithoutRow = 512;

template <class Shape>
__global__ void __launch_bounds__(kThreadsWithoutRow, kThreadsPerMultiprocessor / kThreadsWithoutRow)
    sums_kernel(SoftmaxSums<typename Shape::T> args) {
    const int64_t row = blockIdx.x;
    const RowSums sums = row_sums<Shape, Shape::kThreads / kThreadsWithoutRow>(
        {args.logits + row * args.num_columns, args.num_columns});
    write_sums(args, sums, args.targets[row] - args.begin);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerMultiprocessor)
    gradient_kernel(CrossEntropyGradient<typename Shape::T> args) {
    const int64_t row = blockIdx.x, target = args.targets[row];
    auto* logits = args.logits + row * args.num_columns;
    if (target < 0) return write_zeros<Shape>(logits, args.num_columns);
    write_gradient<Shape>(logits, {logits, args.num_columns}, {args.maxima[row], args.exponentials[row]},
                          *args.scale, target - args.begin);
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerMultiprocessor)
    both_kernel(CrossEntropy<typename Shape::T> args, int64_t num_kept) {
    using T = typename Shape::T;
    const int64_t number = blockIdx.x, target = args.targets[number];
    T* logits = args.logits + number * args.num_columns;
    const Row<T> row = {logits, args.num_columns, static_cast<T*>(block_memory()), num_kept};
    const RowSums sums = row_sums<Shape>(row);
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
    if (target < 0) return write_zeros<Shape>(logits, args.num_columns);
    write_gradient<Shape>(logits, row, sums, *args.scale, target);
}

/// Calls visit(shape) for the rows: packs if all rows begin at multiples of 16 bytes, else single elements;
/// and a block for a whole multiprocessor if the memory of two blocks cannot keep two rows. The choice
/// depends only on the rows, because sums and gradient have the same bits in one launch and in two.
template <class T, class Visit>
void with_shape(int64_t num_columns, const T* logits, Visit visit) {
    constexpr int kReserved = 2048;  // of each block, beside block_memory()
    const bool one_block = 2 * (num_columns * int64_t{sizeof(T)} + kReserved) > max_shared_bytes();
    const bool packed = in_packs<T>(num_columns, logits);
    if (packed && one_block) return visit(Shape<T, kPack<T>, 1024>());
    if (packed) return visit(Shape<T, kPack<T>, 512>());
    if (one_block) return visit(Shape<T, 1, 1024>());
    visit(Shape<T, 1, 512>());
}

/// Launches a block for each row.
template <class... Params>
void for_each_row(const char* name, int64_t num_rows, int num_threads, int64_t shared_bytes, GpuStream stream,
                  void (*kernel)(Params...), std::type_identity_t<Params>... args) {
    if (num_rows == 0) return;
    launch({name, static_cast<unsigned>(num_rows), num_threads, stream, static_cast<int>(shared_bytes)},
           kernel, args...);
}

}  // namespace

template <class T>
void softmax_sums(const SoftmaxSums<T>& args, GpuStream stream) {
    with_shape(args.num_columns, args.logits, [&](auto shape) {
        for_each_row("softmax_sums", args.num_rows, kThreadsWithoutRow, /*shared_bytes=*/0, stream,
                     sums_kernel<decltype(shape)>, args);
    });
}

template <class T>
void cross_entropy_gradient(const CrossEntropyGradient<T>& args, GpuStream stream) {
    with_shape<T>(args.num_columns, args.logits, [&](auto shape) {
        using Rows = Shape<T, decltype(shape)::kCount, kThreadsWithoutRow>;  // no bit depends on it
        for_each_row("cross_entropy_gradient", args.num_rows, Rows::kThreads, /*shared_bytes=*/0, stream,
                     gradient_kernel<Rows>, args);
    });
}

template <class T>
void cross_entropy(const CrossEntropy<T>& args, GpuStream stream) {
    with_shape<T>(args.num_columns, args.logits, [&](auto shape) {
        using Rows = decltype(shape);
        const int64_t max_kept = max_shared_bytes() / 16 * kPack<T>;
        const int64_t num_kept = args.num_columns < max_kept ? args.num_columns : max_kept;
        for_each_row("cross_entropy", args.num_rows, Rows::kThreads, num_kept * int64_t{sizeof(T)}, stream,
                     both_kernel<Rows>, args, num_kept);
    });
}

template void softmax_sums(const SoftmaxSums<float>&, GpuStream);
template void softmax_sums(const SoftmaxSums<BFloat16>&, GpuStream);
template void cross_entropy_gradient(const CrossEntropyGradient<float>&, GpuStream);
template void cross_entropy_gradient(const CrossEntropyGradient<BFloat16>&, GpuStream);
template void cross_entropy(const CrossEntropy<float>&, GpuStream);
template void cross_entropy(const CrossEntropy<BFloat16>&, GpuStream);

}  // namespace argosy::kernels::cuda
