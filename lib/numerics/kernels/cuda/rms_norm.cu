// RMSNorm forward on a GPU: one kernel for rows that fit into registers, and one for all other rows. Costs
// are in kernels/rms_norm.h.
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/rows.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;  // per block of any_rms_norm_kernel

/// Blocks per multiprocessor for which rms_norm_kernel has registers. In long rows, 16 warps wait for each
/// other before they store; meanwhile the other blocks have 32 KB or more in flight.
template <class Shape>
constexpr int kMinBlocks = Shape::kThreads < 512 ? 768 / Shape::kThreads
                           : Shape::kPacks <= 2  ? 3
                                                 : 2;

__device__ inline float inverse_rms(float squares, int64_t row_size, float eps) {
    return rsqrtf(__fdividef(squares, static_cast<float>(row_size)) + eps);
}

template <int kCount>
__device__ float sum_of_squares(const Floats<kCount>& x) {
    float squares = 0;
#pragma unroll
    for (int k = 0; k < kCount; ++k) squares += x[k] * x[k];
    return squares;
}

template <int kCount, class T, class Written>
__device__ void store_normed(T* y, const Floats<kCount>& x, float inverse, const Floats<kCount>& weight,
                             Written& written) {
    Floats<kCount> scaled;
#pragma unroll
    for (int k = 0; k < kCount; ++k) scaled[k] = x[k] * inverse * weight[k];
    written.store_and_include(y, narrowed<T>(scaled));
}

/// Reads each row once, into registers. A thread loads all its elements before its first store, because the
/// compiler cannot move a load before a store that may go to the same memory.
template <class T, class Shape, bool kLargest>
__global__ void __launch_bounds__(Shape::kThreads, kMinBlocks<Shape>)
    rms_norm_kernel(RmsNorm<T> args, float* largest) {
    constexpr int kCount = kPack<T>, kRows = Shape::kRows, kPacks = Shape::kPacks;
    __shared__ typename RowSum<Shape>::Memory memory;
    RowSum<Shape> row_sum(memory);
    const RowPlace<T, Shape> place(int64_t{blockIdx.x} * Shape::kRowsPerBlock, args.num_rows, args.row_size);
    LargestOfBlock<Shape::kThreads, kLargest> written(largest);
    Elements<T, kCount> x[kRows][kPacks], weight[kPacks];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
        const T* from = args.x + elements_in_gaps(args.x_groups, place.row(row));
#pragma unroll
        for (int pack = 0; pack < kPacks; ++pack) x[row][pack] = place.load(from, row, pack);
    }
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) weight[pack] = place.load_column(args.weight, pack);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
        float squares = 0;
#pragma unroll
        for (int pack = 0; pack < kPacks; ++pack) {
            squares += sum_of_squares(widened(x[row][pack]));
            keep_narrow(x[row][pack]);
        }
        const float inverse = inverse_rms(row_sum(squares), args.row_size, args.eps);
        if (place.has_row(row) && place.column(0) == 0) args.inverse_rms[place.row(row)] = inverse;
#pragma unroll
        for (int pack = 0; pack < kPacks; ++pack) {
            if (!place.has(row, pack)) continue;
            keep_narrow(weight[pack]);
            store_normed(args.y + place.at(row, pack), widened(x[row][pack]), inverse,
                         with_offset(widened(weight[pack]), args.weight_offset), written);
        }
    }
    written.raise();
}

/// For rows that are too long for rms_norm_kernel, or whose size or address is not a multiple of 16 bytes.
/// Reads each row twice; a block computes one row.
template <class T, int kCount, bool kLargest>
__global__ void __launch_bounds__(kThreads, 5) any_rms_norm_kernel(RmsNorm<T> args, float* largest) {
    __shared__ BlockSum<kThreads>::Memory memory;
    BlockSum<kThreads> block_sum(memory);
    LargestOfBlock<kThreads, kLargest> written(largest);
    const int64_t begin = int64_t{blockIdx.x} * args.row_size;
    const T* from = args.x + begin + elements_in_gaps(args.x_groups, blockIdx.x);
    float squares = 0;
    for (int64_t i = threadIdx.x * kCount; i < args.row_size; i += kThreads * kCount) {
        squares += sum_of_squares(load<kCount>(from + i));
    }
    const float inverse = inverse_rms(block_sum(squares), args.row_size, args.eps);
    if (threadIdx.x == 0) args.inverse_rms[blockIdx.x] = inverse;
    for (int64_t i = threadIdx.x * kCount; i < args.row_size; i += kThreads * kCount) {
        const auto weight = with_offset(load<kCount>(args.weight + i), args.weight_offset);
        store_normed(args.y + begin + i, load<kCount>(from + i), inverse, weight, written);
    }
    written.raise();
}

template <class T, bool kLargest>
void launch_rms_norm(const RmsNorm<T>& args, GpuStream stream, float* largest) {
    // A bitwise or is a multiple of a power of two only if both numbers are.
    const bool packed = in_packs<T>(args.row_size | args.x_groups.gap, args.x, args.weight, args.y);
    const auto start = [&](auto shape) {
        using Shape = decltype(shape);
        const int64_t blocks = ceil_div(args.num_rows, Shape::kRowsPerBlock);
        launch({"rms_norm", static_cast<unsigned>(blocks), Shape::kThreads, stream},
               rms_norm_kernel<T, Shape, kLargest>, args, largest);
    };
    if (packed && with_row_shape(args.row_size / kPack<T>, start)) return;
    const auto kernel =
        packed ? any_rms_norm_kernel<T, kPack<T>, kLargest> : any_rms_norm_kernel<T, 1, kLargest>;
    launch({"any_rms_norm", static_cast<unsigned>(args.num_rows), kThreads, stream}, kernel, args, largest);
}

}  // namespace

template <class T>
void rms_norm(const RmsNorm<T>& args, GpuStream stream, float* largest) {
    if (args.num_rows == 0) return;
    largest != nullptr ? launch_rms_norm<T, true>(args, stream, largest)
                       : launch_rms_norm<T, false>(args, stream, nullptr);
}

template void rms_norm(const RmsNorm<float>&, GpuStream, float*);
template void rms_norm(const RmsNorm<BFloat16>&, GpuStream, float*);

}  // namespace argosy::kernels::cuda
