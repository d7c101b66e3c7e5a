// The largest magnitudes of a matrix's groups on GPUs, and their scales: 2 bytes read per element of bf16.
// Magnitudes are compared as the bits of their fp32 numbers, so atomicMax() joins the parts of a group, and
// their order does not matter.
#include "kernels/cuda/kernels.h"

#include <algorithm>

#include "kernels/cuda/rows.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// Groups of whole rows. A block reads kPerThread packs for each thread of a row.
constexpr int kPerThread = 4;
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) row_kernel(LargestMagnitudes<T> args) {
    const Grouped<T>& matrix = args.matrix;
    LargestOfBlock<kThreads> largest(args.largest + blockIdx.y * args.largest_stride);
    const T* const row = matrix.x + blockIdx.y * matrix.row_stride;
    const int64_t begin = (int64_t{blockIdx.x} * kThreads * kPerThread + threadIdx.x) * kCount;
    Elements<T, kCount> loaded[kPerThread] = {};
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
        const int64_t at = begin + i * kThreads * kCount;
        if (at < matrix.row_size) loaded[i] = load_elements<kCount>(row + at);
    }
#pragma unroll
    for (const auto& each : loaded) largest.include(each);
    largest.raise();
}

/// One group, the matrix: reads rows one after the other as if they were one row. kGaps: there are gaps
/// between them. Each thread has kAtOnce packs in flight, 32 KB of a block.
constexpr int kAtOnce = 8;
template <class T, int kCount, bool kGaps>
__global__ void __launch_bounds__(kThreads, 4) matrix_kernel(Grouped<T> matrix, float* result) {
    LargestOfBlock<kThreads> largest(result);
    const int64_t count = matrix.num_rows * matrix.row_size;
    const int64_t begin = (int64_t{blockIdx.x} * kThreads * kAtOnce + threadIdx.x) * kCount;
    Elements<T, kCount> loaded[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
        const int64_t at = begin + i * kThreads * kCount;
        if (at >= count) continue;
        const int64_t place = kGaps ? place_of(at, matrix.row_size, matrix.row_stride) : at;
        loaded[i] = load_elements<kCount>(matrix.x + place);
    }
#pragma unroll
    for (const auto& each : loaded) largest.include(each);
    largest.raise();
}

/// Groups of whole columns: a thread reads kCount columns of kRowsAtOnce rows. The warps of a block join
/// their results first: thousands of threads that call atomicMax() on one number take longer than the reads.
constexpr int kRowsAtOnce = 32, kWarps = kThreads / kWarp;
template <class T>
bool groups_columns(const Grouped<T>& matrix) {
    return matrix.group_columns == 1 && (matrix.group_rows > 1 || matrix.row_size > 1);
}
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) column_kernel(LargestMagnitudes<T> args) {
    constexpr int kColumns = kWarp * kCount;  // of a block
    __shared__ Shared<uint32_t, kWarps * kColumns> parts;
    const Grouped<T>& matrix = args.matrix;
    const int warp = threadIdx.x / kWarp, own = threadIdx.x % kWarp * kCount;
    const int64_t columns = int64_t{blockIdx.y} * kColumns, column = columns + own;
    const int64_t first = (int64_t{blockIdx.x} * kWarps + warp) * kRowsAtOnce, rest = matrix.num_rows - first;
    uint32_t largest[kCount] = {};
    if (column < matrix.row_size) {
        const T* const x = matrix.x + first * matrix.row_stride + column;
#pragma unroll 8
        for (int i = 0; i < (rest < kRowsAtOnce ? rest : kRowsAtOnce); ++i) {
            const auto numbers = load<kCount>(x + i * matrix.row_stride);
#pragma unroll
            for (int k = 0; k < kCount; ++k) largest[k] = larger(largest[k], magnitude_of(numbers[k]));
        }
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) parts[warp * kColumns + own + k] = largest[k];
    __syncthreads();
    float* const out = args.largest + columns;
    for (int i = threadIdx.x; i < kColumns && columns + i < matrix.row_size; i += kThreads) {
        uint32_t all = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) all = larger(all, parts[w * kColumns + i]);
        atomicMax(reinterpret_cast<unsigned*>(out + i), all);
    }
}

template <class T>
bool is_one_group(const Grouped<T>& matrix) {
    return matrix.group_rows == matrix.num_rows && matrix.group_columns == matrix.row_size;
}

template <int kCount, class T>
void launch_largest(const LargestMagnitudes<T>& args, GpuStream stream) {
    constexpr const char* kName = "largest_magnitudes";
    const Grouped<T>& matrix = args.matrix;
    const auto grid = [](int64_t x, int64_t y) {
        return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y));
    };
    if (groups_columns(matrix)) {
        constexpr int kRowsOfBlock = kWarps * kRowsAtOnce;
        const dim3 blocks =
            grid(ceil_div(matrix.num_rows, kRowsOfBlock), ceil_div(matrix.row_size, kWarp * kCount));
        return launch({kName, blocks, kThreads, stream}, column_kernel<T, kCount>, args);
    }
    const bool whole = is_one_group(matrix);
    int64_t max_rows = 65535;  // of a grid
    if (whole) max_rows = std::max<int64_t>(max_rows_per_launch(matrix.row_size), 1);
    LargestMagnitudes<T> part = args;
    for (int64_t rows_left = matrix.num_rows; rows_left > 0; rows_left -= max_rows) {
        const int64_t rows = part.matrix.num_rows = std::min(rows_left, max_rows);
        if (whole) {
            const dim3 blocks = grid(ceil_div(rows * matrix.row_size, kThreads * kCount * kAtOnce), 1);
            launch({kName, blocks, kThreads, stream},
                   rows == 1 ? matrix_kernel<T, kCount, false> : matrix_kernel<T, kCount, true>, part.matrix,
                   args.largest);
        } else {
            const dim3 blocks = grid(ceil_div(matrix.row_size, kThreads * kCount * kPerThread), rows);
            launch({kName, blocks, kThreads, stream}, row_kernel<T, kCount>, part);
        }
        part.matrix.x += max_rows * matrix.row_stride;
        part.largest += max_rows * args.largest_stride;
    }
}

__global__ void __launch_bounds__(kThreads) scales_kernel(Float8Scales args) {
    const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (i >= args.count) return;
    const double largest = args.largest[i];  // NaN stays
    float factor =
        static_cast<float>(args.type_largest / (largest < args.min_largest ? args.min_largest : largest));
    if (args.power_of_two) factor = __uint_as_float(__float_as_uint(factor) & 0x7f800000);
    args.factors[i] = factor;
    args.scales[i] = __fdiv_rn(1, factor);
}

}  // namespace

void float8_scales(const Float8Scales& args, GpuStream stream) {
    if (args.count == 0) return;
    const auto blocks = static_cast<unsigned>(ceil_div(args.count, kThreads));
    launch({"float8_scales", blocks, kThreads, stream}, scales_kernel, args);
}

template <class T>
void largest_magnitudes(const LargestMagnitudes<T>& args, GpuStream stream) {
    Grouped<T> matrix = args.matrix;
    if (matrix.num_rows == 0 || matrix.row_size == 0) return;
    if (is_one_group(matrix) && matrix.row_stride == matrix.row_size) {
        const int64_t count = matrix.num_rows * matrix.row_size;
        matrix = {matrix.x, 1, count, count, 1, count};
    }
    const bool packed = in_packs<T>(matrix.row_size | matrix.row_stride, matrix.x);
    const LargestMagnitudes<T> all = {matrix, args.largest, args.largest_stride};
    packed ? launch_largest<kPack<T>>(all, stream) : launch_largest<1>(all, stream);
}

template void largest_magnitudes(const LargestMagnitudes<float>&, GpuStream);
template void largest_magnitudes(const LargestMagnitudes<BFloat16>&, GpuStream);

}  // namespace argosy::kernels::cuda
