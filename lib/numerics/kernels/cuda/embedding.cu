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
/// adds the rows of dx from the first position of the run to the last, which fixes the order of the sum. The
/// run of a frequent token takes long and mostly waits for memory; therefore the thread loads
/// kPositionsAtOnce rows at once.
constexpr int kGradientThreads = 128, kPositionsAtOnce = 16;

/// The next positions of a run, one in each lane of the warp. `length` is the number of these positions that
/// belong to the run. REQUIRES: all lanes of the warp construct the piece together.
struct RunPiece {
    int position, length;

    template <class T>
    __device__ RunPiece(const EmbeddingGradient<T>& args, const int64_t* positions, int64_t begin,
                        int64_t token) {
        const int64_t i = begin + threadIdx.x % kWarp;
        const bool exists = i < args.num_tokens;
        position = exists ? static_cast<int>(positions[i]) : 0;
        // Equal tokens are adjacent, so that their number is the length.
        length = __popc(__ballot_sync(kAllLanes, exists && args.tokens[i] == token));
    }
};

/// Adds the rows of dx at kPositionsAtOnce positions of the piece, from `first` on, to `total`, one after the
/// other. `dx` points to the thread's columns. A thread whose columns are not `within` the row loads nothing,
/// and its total is not used. REQUIRES: all lanes of the warp call add_positions().
template <class T, int kCount>
__device__ void add_positions(const RunPiece& piece, int first, const T* dx, int64_t row_stride, bool within,
                              Floats<kCount>& total) {
    Elements<T, kCount> rows[kPositionsAtOnce];
#pragma unroll
    for (int p = 0; p < kPositionsAtOnce; ++p) {
        const int64_t position = __shfl_sync(kAllLanes, piece.position, first + p);
        if (within && first + p < piece.length) rows[p] = load_elements<kCount>(dx + position * row_stride);
    }
#pragma unroll
    for (int p = 0; p < kPositionsAtOnce; ++p) {
        if (first + p >= piece.length) continue;
        const auto wide = widened(rows[p]);
#pragma unroll
        for (int k = 0; k < kCount; ++k) total[k] += wide[k];
    }
}

template <class T, int kCount>
__global__ void __launch_bounds__(kGradientThreads)
    embedding_gradient_kernel(EmbeddingGradient<T> args, const int64_t* positions) {
    const int64_t begin = blockIdx.x, token = args.tokens[begin], row = token - args.begin;
    if ((begin > 0 && args.tokens[begin - 1] == token) || row < 0 || row >= args.num_rows) return;
    const int64_t column = (int64_t{blockIdx.y} * kGradientThreads + threadIdx.x) * kCount;
    const bool within = column < args.row_size;
    float* sums = args.sums + row * args.row_stride + column;
    Floats<kCount> total = {};
    if (within) total = load<kCount>(sums);
    RunPiece piece(args, positions, begin, token);
    for (int64_t i = begin + kWarp;; i += kWarp) {
        const RunPiece next(args, positions, i, token);
        add_positions(piece, 0, args.dx + column, args.row_stride, within, total);
        if (piece.length > kPositionsAtOnce) {
            add_positions(piece, kPositionsAtOnce, args.dx + column, args.row_stride, within, total);
        }
        if (next.length == 0) break;
        piece = next;
    }
    if (within) store(sums, total);
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
    const dim3 blocks(static_cast<unsigned>(args.num_tokens),
                      static_cast<unsigned>(ceil_div(args.row_size, columns)));
    launch({"embedding_gradient", blocks, kGradientThreads, stream}, kernel, args, positions);
}

template void embedding(const Embedding<float>&, GpuStream);
template void embedding(const Embedding<BFloat16>&, GpuStream);
template void embedding_gradient(const EmbeddingGradient<float>&, const int64_t*, GpuStream);
template void embedding_gradient(const EmbeddingGradient<BFloat16>&, const int64_t*, GpuStream);

}  // namespace argosy::kernels::cuda
