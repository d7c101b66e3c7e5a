// Sums over rows, and squared norms of tensors.
//
// Sums over rows: a block adds up one chunk of rows. If there are several chunks, a second launch adds up the
// chunks' sums in order.
//
// Squared norms: the first launch sums each block of a tensor's elements; the second launch, with one block
// per tensor, adds up these sums. Each element costs 4 bytes of memory traffic (2 in bf16), a conversion to
// fp64 and an fp64 multiply-add. A multiprocessor of an H100 does 16 conversions and 64 multiply-adds per
// clock, so arithmetic takes at most a third of the time that memory takes (two thirds in bf16).
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kAtOnce = 4;       // rows that a thread loads before it adds the first of them
constexpr int kFewGroups = 8;    // warps of a block, for many rows
constexpr int kManyGroups = 32;  // warps of a block, for the sums of chunks
/// Blocks of kFewGroups warps on a multiprocessor: 98 KB in flight.
constexpr int kFewGroupsBlocks = 6;

/// The work of one launch. A block adds up one chunk: rows_per_chunk rows, a warp's width of packs wide. Each
/// of its kGroups warps takes every kGroups-th row. The block writes row blockIdx.y of `sums`; if `add`, it
/// adds to that row.
template <class T>
struct Chunks {
    SumRows<T> rows;
    int64_t rows_per_chunk;
    float* sums;
    bool add;
};

template <int kCount, int kGroups, class T>
__device__ Floats<kCount> sum_of_warp(const Chunks<T>& chunks, int64_t column) {
    const int64_t begin = blockIdx.y * chunks.rows_per_chunk;
    const int64_t chunk_end = begin + chunks.rows_per_chunk, num_rows = chunks.rows.num_rows;
    const int64_t end = chunk_end < num_rows ? chunk_end : num_rows;
    Floats<kCount> sum = {};
    for (int64_t row = begin + threadIdx.x / kWarp; row < end; row += kGroups * kAtOnce) {
        Elements<T, kCount> loaded[kAtOnce] = {};
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int64_t one = row + i * kGroups;
            if (one < end)
                loaded[i] = load_elements<kCount>(chunks.rows.x + one * chunks.rows.row_stride + column);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const auto x = widened(loaded[i]);
#pragma unroll
            for (int k = 0; k < kCount; ++k) sum[k] += x[k];
        }
    }
    return sum;
}

template <class T, int kCount, int kGroups>
__global__ void __launch_bounds__(kGroups* kWarp, kGroups == kFewGroups && kCount > 1 ? kFewGroupsBlocks : 1)
    sum_rows_kernel(Chunks<T> chunks) {
    __shared__ Shared<float, kGroups * kWarp * kCount> sums_of_warps;
    const int64_t begin = int64_t{blockIdx.x} * kWarp * kCount;
    const int64_t column = begin + threadIdx.x % kWarp * kCount;
    Floats<kCount> sum = {};
    if (column < chunks.rows.row_size) sum = sum_of_warp<kCount, kGroups>(chunks, column);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sums_of_warps[threadIdx.x * kCount + k] = sum[k];
    __syncthreads();
    for (int i = threadIdx.x; i < kWarp * kCount && begin + i < chunks.rows.row_size; i += kGroups * kWarp) {
        float total = 0;
        for (int group = 0; group < kGroups; ++group) total += sums_of_warps[group * kWarp * kCount + i];
        float* to = chunks.sums + blockIdx.y * chunks.rows.row_size + begin + i;
        *to = chunks.add ? *to + total : total;
    }
}

/// Returns as many chunks as run at the same time, so that no block starts when the others end; but leaves
/// each warp at least two rounds of loads. The number depends on the sizes and the number of
/// multiprocessors, not on the alignment.
template <class T>
int64_t num_chunks(const SumRows<T>& args) {
    const int64_t wide = ceil_div(args.row_size, kWarp * kPack<T>);
    const int64_t at_once = int64_t{num_multiprocessors()} * kFewGroupsBlocks / wide;
    const int64_t wanted = at_once > 1 ? at_once : 1;
    const int64_t max_chunks = ceil_div(args.num_rows, 2 * kFewGroups * kAtOnce);
    const int64_t chunks = wanted < max_chunks ? wanted : max_chunks;
    return ceil_div(args.num_rows, ceil_div(args.num_rows, chunks));
}

template <int kGroups, class T>
void launch_sums(const Chunks<T>& chunks, int64_t num_chunks, GpuStream stream) {
    const bool packed =
        in_packs<T>(chunks.rows.row_size, chunks.rows.x) && in_packs<T>(chunks.rows.row_stride);
    const int64_t wide = ceil_div(chunks.rows.row_size, kWarp * (packed ? kPack<T> : 1));
    const dim3 blocks(static_cast<unsigned>(wide), static_cast<unsigned>(num_chunks));
    const auto kernel = packed ? sum_rows_kernel<T, kPack<T>, kGroups> : sum_rows_kernel<T, 1, kGroups>;
    launch({"sum_rows", blocks, kGroups * kWarp, stream}, kernel, chunks);
}

constexpr int kThreads = 256;
constexpr int kPacksAtOnce = 4;  // packs that a thread loads at once
constexpr int64_t kElementsPerBlock = 1 << 15;
static_assert(kElementsPerBlock % (kThreads * kPack<BFloat16> * kPacksAtOnce) == 0);

int64_t num_partials(int64_t count) { return ceil_div(count, kElementsPerBlock); }

struct Squares {
    SquaredNorm tensor;
    double* partials;  // one for each block
    bool packed;

    int64_t num_blocks() const { return num_partials(tensor.count); }
};

struct Total {
    const double* partials;
    int64_t num_partials;
    double* norm;

    int64_t num_blocks() const { return 1; }
};

/// Loads a pack. REQUIRES: if kPacked, x is aligned to a pack. A thread gets the same elements with and
/// without kPacked, so the order of the sum depends on sizes alone.
template <bool kPacked, class T>
__device__ Floats<kPack<T>> load_pack(const T* x) {
    if constexpr (kPacked) {
        return load<kPack<T>>(x);
    } else {
        Floats<kPack<T>> pack;
#pragma unroll
        for (int k = 0; k < kPack<T>; ++k) pack[k] = widened(x[k]);
        return pack;
    }
}

/// The calling thread's part of the sum of squares of x[0] ... x[size - 1].
template <bool kPacked, class T>
__device__ double thread_sum(const T* x, int64_t size) {
    constexpr int kCount = kPack<T>, kWidth = kThreads * kCount;
    const int64_t in_packs = size / kCount * kCount;
    double sums[kCount] = {};
    for (int64_t begin = threadIdx.x * kCount; begin < in_packs; begin += kPacksAtOnce * kWidth) {
        Floats<kCount> packs[kPacksAtOnce] = {};
#pragma unroll
        for (int p = 0; p < kPacksAtOnce; ++p) {
            if (begin + p * kWidth < in_packs) packs[p] = load_pack<kPacked>(x + begin + p * kWidth);
        }
#pragma unroll
        for (int p = 0; p < kPacksAtOnce; ++p) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) sums[k] += double{packs[p][k]} * double{packs[p][k]};
        }
    }
    if (threadIdx.x < size - in_packs) {
        const double last = widened(x[in_packs + threadIdx.x]);
        sums[0] += last * last;
    }
    double total = sums[0];
#pragma unroll
    for (int k = 1; k < kCount; ++k) total += sums[k];
    return total;
}

template <class T>
__device__ double thread_sum(const T* x, int64_t size, bool packed) {
    return packed ? thread_sum<true>(x, size) : thread_sum<false>(x, size);
}

__global__ void __launch_bounds__(kThreads) squares_kernel(const __grid_constant__ TensorList<Squares> list) {
    __shared__ BlockSum<kThreads, double>::Memory memory;
    const auto place = list.place();
    const Squares& squares = list.items[place.item];
    const SquaredNorm& tensor = squares.tensor;
    const int64_t begin = place.block * kElementsPerBlock, rest = tensor.count - begin;
    const int64_t size = rest < kElementsPerBlock ? rest : kElementsPerBlock;
    const double sum = tensor.bf16_x == nullptr ? thread_sum(tensor.x + begin, size, squares.packed)
                                                : thread_sum(tensor.bf16_x + begin, size, squares.packed);
    const double total = BlockSum<kThreads, double>(memory)(sum);
    if (threadIdx.x == 0) squares.partials[place.block] = total;
}

__global__ void __launch_bounds__(kThreads) totals_kernel(const __grid_constant__ TensorList<Total> list) {
    __shared__ BlockSum<kThreads, double>::Memory memory;
    const Total tensor = list.items[list.place().item];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < tensor.num_partials; i += kThreads) sum += tensor.partials[i];
    const double total = BlockSum<kThreads, double>(memory)(sum);
    if (threadIdx.x == 0) *tensor.norm = total;
}

}  // namespace

template <class T>
int64_t sum_rows_scratch_bytes(const SumRows<T>& args) {
    if (args.num_rows == 0 || num_chunks(args) == 1) return 0;
    return num_chunks(args) * args.row_size * int64_t{sizeof(float)};
}

template <class T>
void sum_rows(const SumRows<T>& args, void* scratch, GpuStream stream) {
    if (args.num_rows == 0 || args.row_size == 0) return;
    const int64_t chunks = num_chunks(args);
    auto* partial = static_cast<float*>(scratch);
    launch_sums<kFewGroups>(Chunks<T>{.rows = args,
                                      .rows_per_chunk = ceil_div(args.num_rows, chunks),
                                      .sums = chunks == 1 ? args.sums : partial,
                                      .add = chunks == 1},
                            chunks, stream);
    if (chunks > 1) add_partial_rows(partial, chunks, args.row_size, args.sums, stream);
}

void add_partial_rows(const float* partial, int64_t num_rows, int64_t row_size, float* sums,
                      GpuStream stream) {
    if (num_rows == 0 || row_size == 0) return;
    const SumRows<float> rows = {num_rows, row_size, row_size, partial, sums};
    launch_sums<kManyGroups>(Chunks<float>{rows, num_rows, sums, true}, 1, stream);
}

template int64_t sum_rows_scratch_bytes(const SumRows<float>&);
template int64_t sum_rows_scratch_bytes(const SumRows<BFloat16>&);
template void sum_rows(const SumRows<float>&, void*, GpuStream);
template void sum_rows(const SumRows<BFloat16>&, void*, GpuStream);

int64_t squared_norms_scratch_bytes(std::span<const SquaredNorm> tensors) {
    int64_t count = 0;
    for (const SquaredNorm& tensor : tensors) count += num_partials(tensor.count);
    return count * static_cast<int64_t>(sizeof(double));
}

void squared_norms(std::span<const SquaredNorm> tensors, double* norms, void* scratch, GpuStream stream) {
    const auto count = static_cast<int64_t>(tensors.size());
    auto* partials = static_cast<double*>(scratch);
    const auto squares = [&, next = partials](int64_t i) mutable {
        double* own = next;
        next += num_partials(tensors[i].count);
        return Squares{tensors[i], own, in_packs<float>(0, tensors[i].x, tensors[i].bf16_x)};
    };
    for_each_list<Squares>(count, squares, [&](const TensorList<Squares>& list) {
        launch({"squared_norms", list.num_blocks(), kThreads, stream}, squares_kernel, list);
    });
    const auto total = [&, next = partials](int64_t i) mutable {
        const double* own = next;
        next += num_partials(tensors[i].count);
        return Total{own, num_partials(tensors[i].count), norms + i};
    };
    for_each_list<Total>(count, total, [&](const TensorList<Total>& list) {
        launch({"squared_norms", list.num_blocks(), kThreads, stream}, totals_kernel, list);
    });
}

}  // namespace argosy::kernels::cuda
