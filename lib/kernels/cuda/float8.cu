// Casts to float8 on GPUs: largest magnitudes, and casts that write a matrix, its transpose, or both.
//
// Largest magnitudes: 2 bytes read per element of bf16. Magnitudes are compared as the bits of their fp32
// numbers, so atomicMax() joins the parts of a group, and their order does not matter.
//
// A cast works on tiles of 64 x 64 elements: 2 bytes read and 1 or 2 written per element of bf16. A thread
// has 4 x 4 elements. The thread transposes their bytes in registers; words of the transpose go through the
// memory of the block, so that both results are written in runs of 64 bytes.
#include "kernels/float8.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kernels.h"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/// The larger one of `before` and the magnitudes of kCount elements.
template <int kCount, class T>
__device__ uint32_t larger_of(const T* x, uint32_t before) {
    const auto numbers = load<kCount>(x);
#pragma unroll
    for (int k = 0; k < kCount; ++k) before = larger(before, __float_as_uint(numbers[k]) & 0x7fffffff);
    return before;
}

__device__ void raise_to(float* largest, uint32_t magnitude) {
    atomicMax(reinterpret_cast<unsigned*>(largest), magnitude);
}

/// Groups of whole rows, or of all rows. A block reads kPerThread packs for each thread of a row.
constexpr int kPerThread = 4;
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) row_kernel(LargestMagnitudes<T> args) {
    __shared__ Shared<uint32_t, kThreads / kWarp> parts;
    const Grouped<T>& matrix = args.matrix;
    const T* const row = matrix.x + blockIdx.y * matrix.row_stride;
    const int64_t begin = (int64_t{blockIdx.x} * kThreads * kPerThread + threadIdx.x) * kCount;
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
        const int64_t at = begin + i * kThreads * kCount;
        if (at < matrix.row_size) largest = larger_of<kCount>(row + at, largest);
    }
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        largest = larger(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    }
    if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = largest;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < kThreads / kWarp; ++i) largest = larger(largest, parts[i]);
    raise_to(args.largest + (matrix.group_rows == 1 ? blockIdx.y * args.largest_stride : 0), largest);
}

/// Groups of some adjacent columns of one row: one thread for each group.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) block_kernel(LargestMagnitudes<T> args) {
    const Grouped<T>& matrix = args.matrix;
    const int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x, first = group * matrix.group_columns;
    if (first >= matrix.row_size) return;
    const T* const x = matrix.x + blockIdx.y * matrix.row_stride + first;
    uint32_t largest = 0;
    for (int64_t i = 0; i < matrix.group_columns; i += kCount) largest = larger_of<kCount>(x + i, largest);
    args.largest[blockIdx.y * args.largest_stride + group] = __uint_as_float(largest);
}

/// Groups of some adjacent rows, or all, of one column: a thread reads kCount columns of kRowsAtOnce rows. If
/// a group is the column, the warps of a block join their results first: thousands of threads that call
/// atomicMax() on one number take longer than the reads.
constexpr int kRowsAtOnce = 32, kWarps = kThreads / kWarp;
template <class T>
bool groups_rows_of_columns(const Grouped<T>& matrix) {
    return matrix.group_columns == 1 && matrix.group_rows > 1;
}
template <class T, int kCount, bool kJoined>
__global__ void __launch_bounds__(kThreads) column_kernel(LargestMagnitudes<T> args) {
    constexpr int kColumns = kWarp * kCount;  // of a block
    __shared__ Shared<uint32_t, kJoined ? kWarps * kColumns : 1> parts;
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
            for (int k = 0; k < kCount; ++k)
                largest[k] = larger(largest[k], __float_as_uint(numbers[k]) & 0x7fffffff);
        }
    }
    if constexpr (!kJoined) {
        if (column >= matrix.row_size || rest <= 0) return;
        float* const out = args.largest + first / matrix.group_rows * args.largest_stride + column;
#pragma unroll
        for (int k = 0; k < kCount; ++k) raise_to(out + k, largest[k]);
    } else {
#pragma unroll
        for (int k = 0; k < kCount; ++k) parts[warp * kColumns + own + k] = largest[k];
        __syncthreads();
        float* const out = args.largest + columns;
        for (int i = threadIdx.x; i < kColumns && columns + i < matrix.row_size; i += kThreads) {
            uint32_t all = 0;
#pragma unroll
            for (int w = 0; w < kWarps; ++w) all = larger(all, parts[w * kColumns + i]);
            raise_to(out + i, all);
        }
    }
}

template <int kCount, class T>
void launch_largest(const LargestMagnitudes<T>& args, GpuStream stream) {
    constexpr const char* kName = "largest_magnitudes";
    const Grouped<T>& matrix = args.matrix;
    const auto grid = [](int64_t x, int64_t y) {
        return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y));
    };
    if (groups_rows_of_columns(matrix)) {
        constexpr int kRowsOfBlock = kWarps * kRowsAtOnce;
        const dim3 blocks =
            grid(ceil_div(matrix.num_rows, kRowsOfBlock), ceil_div(matrix.row_size, kWarp * kCount));
        const bool joined = matrix.group_rows == matrix.num_rows;
        return launch({kName, blocks, kThreads, stream},
                      joined ? column_kernel<T, kCount, true> : column_kernel<T, kCount, false>, args);
    }
    constexpr int64_t kMaxRows = 65535;  // of a grid
    LargestMagnitudes<T> part = args;
    for (int64_t rows_left = matrix.num_rows; rows_left > 0; rows_left -= kMaxRows) {
        const int64_t rows = rows_left < kMaxRows ? rows_left : kMaxRows;
        if (matrix.group_columns < matrix.row_size) {
            const dim3 blocks = grid(ceil_div(matrix.row_size / matrix.group_columns, kThreads), rows);
            launch({kName, blocks, kThreads, stream}, block_kernel<T, kCount>, part);
        } else {
            const dim3 blocks = grid(ceil_div(matrix.row_size, kThreads * kCount * kPerThread), rows);
            launch({kName, blocks, kThreads, stream}, row_kernel<T, kCount>, part);
        }
        part.matrix.x += kMaxRows * matrix.row_stride;
        if (matrix.group_rows == 1) part.largest += kMaxRows * args.largest_stride;
    }
}

constexpr int kTile = 64, kSide = 4, kWords = kTile / kSide;

/// The bytes of a cast, four of a row in a word. A thread's rows and columns begin at multiples of kSide, so
/// that they share a group unless a group has one row or one column.
template <class T, Float8Type kType, bool kPacked>
struct CastBytes {
    static constexpr const char* kName = "cast_to_float8";
    CastToFloat8<T> args;

    /// The first element and the first factor of a thread.
    struct Place {
        const T* x;
        const float* factors;
    };
    __device__ Place place(int64_t row, int64_t column) const {
        const Grouped<T>& matrix = args.matrix;
        const auto group_of = [](int64_t index, int64_t size, int64_t whole) {
            if (size == 1) return index;
            return size == whole ? 0 : int64_t{static_cast<uint32_t>(index) / static_cast<uint32_t>(size)};
        };
        return {matrix.x + row * matrix.row_stride + column,
                args.factors + group_of(row, matrix.group_rows, matrix.num_rows) * args.factor_stride +
                    group_of(column, matrix.group_columns, matrix.row_size)};
    }

    __device__ uint32_t load(const Place& from, int row, int count) const {
        const Grouped<T>& matrix = args.matrix;
        const T* const x = from.x + row * matrix.row_stride;
        const float* const factors = from.factors + (matrix.group_rows == 1 ? row * args.factor_stride : 0);
        const bool of_columns = matrix.group_columns == 1;
        Floats<kSide> numbers = {};
        if constexpr (kPacked) numbers = cuda::load<kSide>(x);
#pragma unroll
        for (int k = 0; k < kSide; ++k) {
            if (!kPacked && k >= count) break;
            if constexpr (!kPacked) numbers[k] = widened(x[k]);
            numbers[k] *= factors[of_columns ? k : 0];
        }
        if constexpr (kType == Float8Type::E4M3) {
            return round_to_e4m3(numbers[0], numbers[1]) | round_to_e4m3(numbers[2], numbers[3]) << 16;
        } else {
            return round_to_e5m2(numbers[0], numbers[1]) | round_to_e5m2(numbers[2], numbers[3]) << 16;
        }
    }
};

template <bool kPacked>
struct PlainBytes {
    static constexpr const char* kName = "transpose_bytes";
    const uint8_t* from;
    int64_t stride;

    __device__ const uint8_t* place(int64_t row, int64_t column) const {
        return from + row * stride + column;
    }

    __device__ uint32_t load(const uint8_t* begin, int row, int count) const {
        const uint8_t* const x = begin + row * stride;
        if constexpr (kPacked) return *reinterpret_cast<const uint32_t*>(x);
        uint32_t word = 0;
        for (int k = 0; k < count; ++k) word |= uint32_t{x[k]} << 8 * k;
        return word;
    }
};

template <bool kPacked>
__device__ void store_bytes(uint8_t* to, uint32_t word, int count) {
    if constexpr (kPacked) {
        *reinterpret_cast<uint32_t*>(to) = word;
    } else {
        for (int k = 0; k < count; ++k) to[k] = static_cast<uint8_t>(word >> 8 * k);
    }
}

struct Outputs {
    int64_t num_rows, row_size;
    uint8_t* values;  // or null
    int64_t value_stride;
    uint8_t* transposed;  // or null
    int64_t transposed_stride;
};

/// How many of the four elements from `begin` on there are; negative if none.
__device__ inline int count_of(int64_t begin, int64_t size) {
    return static_cast<int>(size - begin < kSide ? size - begin : kSide);
}

template <class Bytes, bool kPacked>
__global__ void __launch_bounds__(kThreads) tile_kernel(Bytes bytes, Outputs out) {
    __shared__ Shared<uint32_t, kTile*(kWords + 1)> columns;  // [column, word of four rows]
    const int x = threadIdx.x % kWords, y = threadIdx.x / kWords;
    const int64_t first_row = int64_t{blockIdx.y} * kTile, first_column = int64_t{blockIdx.x} * kTile;
    const int64_t row = first_row + y * kSide, column = first_column + x * kSide;
    const int num_columns = count_of(column, out.row_size);
    uint32_t words[kSide] = {};
    if (num_columns > 0) {
        const auto place = bytes.place(row, column);
#pragma unroll
        for (int i = 0; i < kSide; ++i) {
            if (row + i < out.num_rows) words[i] = bytes.load(place, i, num_columns);
        }
    }
    if (out.values != nullptr) {
#pragma unroll
        for (int i = 0; i < kSide; ++i) {
            if (row + i >= out.num_rows) break;
            if (num_columns > 0)
                store_bytes<kPacked>(out.values + (row + i) * out.value_stride + column, words[i],
                                     num_columns);
        }
    }
    if (out.transposed == nullptr) return;
#pragma unroll
    for (int k = 0; k < kSide; ++k) {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < kSide; ++i) word |= (words[i] >> 8 * k & 0xff) << 8 * i;
        columns[(x * kSide + k) * (kWords + 1) + y] = word;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
        const int own = y + i * kWords;
        const int64_t to_row = first_column + own, to_column = first_row + x * kSide;
        const int num_rows = count_of(to_column, out.num_rows);
        if (to_row >= out.row_size || num_rows <= 0) continue;
        store_bytes<kPacked>(out.transposed + to_row * out.transposed_stride + to_column,
                             columns[own * (kWords + 1) + x], num_rows);
    }
}

template <bool kPacked, class Bytes>
void launch_tiles(const Bytes& bytes, const Outputs& out, GpuStream stream) {
    if (out.num_rows == 0 || out.row_size == 0) return;
    const dim3 blocks(static_cast<unsigned>(ceil_div(out.row_size, kTile)),
                      static_cast<unsigned>(ceil_div(out.num_rows, kTile)));
    launch({Bytes::kName, blocks, kThreads, stream}, tile_kernel<Bytes, kPacked>, bytes, out);
}

/// Whether words of four bytes can be stored to every row.
bool in_words(const Outputs& out) {
    const auto bits = [](const uint8_t* pointer, int64_t sizes) {
        return pointer == nullptr ? 0 : reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>(sizes);
    };
    return (bits(out.values, out.row_size | out.value_stride) |
            bits(out.transposed, out.num_rows | out.transposed_stride)) %
               kSide ==
           0;
}

template <Float8Type kType, class T>
void cast_to(const CastToFloat8<T>& args, const Outputs& out, GpuStream stream) {
    const Grouped<T>& matrix = args.matrix;
    const bool packed = in_packs<T>(matrix.row_size | matrix.row_stride, matrix.x) && in_words(out);
    packed ? launch_tiles<true>(CastBytes<T, kType, true>{args}, out, stream)
           : launch_tiles<false>(CastBytes<T, kType, false>{args}, out, stream);
}

}  // namespace

template <class T>
void largest_magnitudes(const LargestMagnitudes<T>& args, GpuStream stream) {
    const Grouped<T>& matrix = args.matrix;
    if (matrix.num_rows == 0 || matrix.row_size == 0) return;
    const int64_t group = groups_rows_of_columns(matrix) ? 0 : matrix.group_columns;
    const bool packed = in_packs<T>(matrix.row_size | matrix.row_stride | group, matrix.x);
    packed ? launch_largest<kPack<T>>(args, stream) : launch_largest<1>(args, stream);
}

template <class T>
void cast_to_float8(const CastToFloat8<T>& args, const TransposedFloat8& transposed, GpuStream stream) {
    const Outputs out = {args.matrix.num_rows, args.matrix.row_size, args.values,
                         args.value_stride,    transposed.values,    transposed.stride};
    args.type == Float8Type::E4M3 ? cast_to<Float8Type::E4M3>(args, out, stream)
                                  : cast_to<Float8Type::E5M2>(args, out, stream);
}

void transpose_bytes(const TransposeBytes& args, GpuStream stream) {
    const Outputs out = {args.num_rows,          args.row_size,         nullptr, 0,
                         args.transposed.values, args.transposed.stride};
    const bool packed = in_words(out) && (reinterpret_cast<uintptr_t>(args.from) |
                                          static_cast<uintptr_t>(args.row_size | args.row_stride)) %
                                                 kSide ==
                                             0;
    packed ? launch_tiles<true>(PlainBytes<true>{args.from, args.row_stride}, out, stream)
           : launch_tiles<false>(PlainBytes<false>{args.from, args.row_stride}, out, stream);
}

template void largest_magnitudes(const LargestMagnitudes<float>&, GpuStream);
template void largest_magnitudes(const LargestMagnitudes<BFloat16>&, GpuStream);
template void largest_magnitudes(const LargestMagnitudes<Half>&, GpuStream);
template void cast_to_float8(const CastToFloat8<float>&, const TransposedFloat8&, GpuStream);
template void cast_to_float8(const CastToFloat8<BFloat16>&, const TransposedFloat8&, GpuStream);
template void cast_to_float8(const CastToFloat8<Half>&, const TransposedFloat8&, GpuStream);

}  // namespace argosy::kernels::cuda
