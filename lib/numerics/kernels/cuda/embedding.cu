// Lookup in the embedding table and its gradient on GPUs.
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {
namespace {

/// One warp for each token copies the token's row.
constexpr int kLookupThreads = 256, kTokensPerBlock = kLookupThreads / kWarp;
constexpr int kPacksAtOnce = 4;  // packs that a lane loads at once

template <class T, int kCount>
__global__ void __launch_bounds__(kLookupThreads) embedding_kernel(Embedding<T> args) {
    constexpr int kWidth = kWarp * kCount;
    const int64_t token = int64_t{blockIdx.x} * kTokensPerBlock + threadIdx.x / kWarp;
    if (token >= args.num_tokens) return;
    const int64_t row = args.tokens[token] - args.begin;
    const bool present = row >= 0 && row < args.num_rows;
    const T* from = args.table + (present ? row : 0) * args.row_size;
    T* to = args.x + token * args.row_size;
    for (int64_t begin = threadIdx.x % kWarp * kCount; begin < args.row_size;
         begin += kPacksAtOnce * kWidth) {
        Elements<T, kCount> packs[kPacksAtOnce] = {};
#pragma unroll
        for (int p = 0; p < kPacksAtOnce; ++p) {
            const int64_t i = begin + p * kWidth;
            if (present && i < args.row_size) packs[p] = load_elements<kCount>(from + i);
        }
#pragma unroll
        for (int p = 0; p < kPacksAtOnce; ++p) {
            const int64_t i = begin + p * kWidth;
            if (i < args.row_size) store(to + i, packs[p]);
        }
    }
}

/// The tokens are sorted, so that equal tokens are a run. For each run and each pack of columns, one thread
/// adds the rows of dx from the first position of the run to the last, which fixes the order of the sum. A
/// block takes the runs that begin at kStartsPerBlock adjacent positions, so most runs wait for the memory
/// once: their tokens and positions were loaded with those of the runs before. With kGradientBlocks on a
/// multiprocessor, 36 KB are in flight even where all tokens differ. The run of a frequent token mostly waits
/// for memory; therefore the thread loads kPositionsAtOnce rows at once.
constexpr int kGradientThreads = 128, kGradientBlocks = 6, kPositionsAtOnce = 12, kStartsPerBlock = 8;

/// Adjacent positions, one in each lane of the warp, and the rows of the sums to which they belong: -1 where
/// there is none. Equal rows are adjacent.
struct Positions {
    int position = 0, row = -1;

    template <class T>
    __device__ Positions(const EmbeddingGradient<T>& args, const int64_t* positions, int64_t first) {
        const int64_t i = first + threadIdx.x % kWarp;
        if (i >= args.num_tokens) return;
        const int64_t found = args.tokens[i] - args.begin;
        position = static_cast<int>(positions[i]);
        if (found >= 0 && found < args.num_rows) row = static_cast<int>(found);
    }
};

/// Adds the rows of dx at kPositionsAtOnce positions, from lane `first` to lane `end` - 1, to `total`, one
/// after the other. `dx` points to the thread's columns. A thread whose columns are not `within` the row
/// loads nothing, and its total is not used. REQUIRES: all lanes of the warp call add_positions().
template <class T, int kCount>
__device__ void add_positions(int position, int first, int end, const T* dx, int64_t row_stride, bool within,
                              Floats<kCount>& total) {
    Elements<T, kCount> rows[kPositionsAtOnce];
#pragma unroll
    for (int p = 0; p < kPositionsAtOnce; ++p) {
        const int64_t at = __shfl_sync(kAllLanes, position, first + p);
        if (within && first + p < end) rows[p] = load_elements<kCount>(dx + at * row_stride);
    }
#pragma unroll
    for (int p = 0; p < kPositionsAtOnce; ++p) {
        if (first + p >= end) continue;
        const auto wide = widened(rows[p]);
#pragma unroll
        for (int k = 0; k < kCount; ++k) total[k] += wide[k];
    }
}

template <class T, int kCount>
__global__ void __launch_bounds__(kGradientThreads, kGradientBlocks)
    embedding_gradient_kernel(EmbeddingGradient<T> args, const int64_t* positions) {
    const int64_t first = int64_t{blockIdx.x} * kStartsPerBlock;
    const int lane = threadIdx.x % kWarp;
    const int64_t column = (int64_t{blockIdx.y} * kGradientThreads + threadIdx.x) * kCount;
    const bool within = column < args.row_size;
    const Positions here(args, positions, first);
    const bool continues =
        here.row >= 0 && first + lane > 0 && args.tokens[first + lane - 1] == here.row + args.begin;
    const unsigned starts = __ballot_sync(kAllLanes, here.row >= 0 && !continues);
    for (int start = 0; start < kStartsPerBlock; ++start) {
        if ((starts >> start & 1) == 0) continue;
        const int row = __shfl_sync(kAllLanes, here.row, start);
        float* sums = args.sums + row * args.row_stride + column;
        Floats<kCount> total = {};
        if (within) total = load<kCount>(sums);
        Positions piece = here;
        int begin = start, end = begin + __popc(__ballot_sync(kAllLanes, piece.row == row));
        for (int64_t next = first + kWarp;; next += kWarp) {
            // The run may go on after the last lane.
            const Positions after(args, positions, end == kWarp ? next : args.num_tokens);
            for (; begin < end; begin += kPositionsAtOnce) {
                add_positions(piece.position, begin, end, args.dx + column, args.row_stride, within, total);
            }
            piece = after, begin = 0;
            end = __popc(__ballot_sync(kAllLanes, piece.row == row));
            if (end == 0) break;
        }
        if (within) store(sums, total);
    }
}

}  // namespace

template <class T>
void embedding(const Embedding<T>& args, GpuStream stream) {
    if (args.num_tokens == 0 || args.row_size == 0) return;
    const bool packed = in_packs<T>(args.row_size, args.table, args.x);
    const auto kernel = packed ? embedding_kernel<T, kPack<T>> : embedding_kernel<T, 1>;
    launch({"embedding", static_cast<unsigned>(ceil_div(args.num_tokens, kTokensPerBlock)), kLookupThreads,
            stream},
           kernel, args);
}

template <class T>
void embedding_gradient(const EmbeddingGradient<T>& args, const int64_t* positions, GpuStream stream) {
    if (args.num_tokens == 0 || args.row_size == 0) return;
    const bool packed = in_packs<T>(args.row_size, args.dx, args.sums) && in_packs<T>(args.row_stride);
    const auto kernel = packed ? embedding_gradient_kernel<T, kPack<T>> : embedding_gradient_kernel<T, 1>;
    const int64_t columns = kGradientThreads * (packed ? kPack<T> : 1);
    const dim3 blocks(static_cast<unsigned>(ceil_div(args.num_tokens, kStartsPerBlock)),
                      static_cast<unsigned>(ceil_div(args.row_size, columns)));
    launch({"embedding_gradient", blocks, kGradientThreads, stream}, kernel, args, positions);
}

template void embedding(const Embedding<float>&, GpuStream);
template void embedding(const Embedding<BFloat16>&, GpuStream);
template void embedding_gradient(const EmbeddingGradient<float>&, const int64_t*, GpuStream);
template void embedding_gradient(const EmbeddingGradient<BFloat16>&, const int64_t*, GpuStream);

}  // namespace argosy::kernels::cuda
