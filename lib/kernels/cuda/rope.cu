#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;
/// A thread rotates the same pairs of kHeads heads, so that the angles are loaded once for all of them and
/// more loads are in flight.
constexpr int kHeads = 4;

/// The grid is [head group, chunk of rows], so that adjacent blocks work on adjacent memory.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) rope_kernel(Rope<T> args, unsigned num_threads) {
    const unsigned thread = blockIdx.y * kThreads + threadIdx.x;
    if (thread >= num_threads) return;
    const auto packs_per_half = static_cast<unsigned>(args.half / kCount);
    const unsigned row = thread / packs_per_half, i = thread % packs_per_half * kCount;
    const unsigned position =
        (static_cast<unsigned>(args.first_row) + row) % static_cast<unsigned>(args.seq_len);
    const int64_t angle = position * args.half + i, head_size = 2 * args.half;
    const int64_t first_head = int64_t{blockIdx.x} * kHeads, heads_left = args.num_heads - first_head;
    const int64_t column = first_head * head_size + i;
    const T* x = args.x + row * args.x_stride + column;
    T* y = args.y + row * args.y_stride + column;
    Elements<T, kCount> firsts[kHeads], seconds[kHeads];
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
        if (head >= heads_left) break;
        firsts[head] = load_elements<kCount>(x + head * head_size);
        seconds[head] = load_elements<kCount>(x + head * head_size + args.half);
    }
    const auto cos = load<kCount>(args.cos + angle), sin = load<kCount>(args.sin + angle);
    const float direction = args.turn == Turn::Forward ? 1.0F : -1.0F;
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
        if (head >= heads_left) break;
        const auto first = widened(firsts[head]), second = widened(seconds[head]);
        Floats<kCount> turned_first, turned_second;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const float s = sin[k] * direction;
            turned_first[k] = first[k] * cos[k] - second[k] * s;
            turned_second[k] = second[k] * cos[k] + first[k] * s;
        }
        store(y + head * head_size, turned_first);
        store(y + head * head_size + args.half, turned_second);
    }
}

/// Takes as many rows in a launch as the grid has room for, so that a thread computes its row in 32 bits.
template <class T, int kCount>
void launch_rope(Rope<T> args, GpuStream stream) {
    constexpr int64_t kMaxThreads = int64_t{kThreads} * 65535;
    const int64_t packs_per_half = args.half / kCount, most_rows = kMaxThreads / packs_per_half;
    const auto groups = static_cast<unsigned>((args.num_heads + kHeads - 1) / kHeads);
    for (int64_t rows_left = args.num_rows; rows_left > 0; rows_left -= most_rows) {
        args.num_rows = rows_left < most_rows ? rows_left : most_rows;
        args.first_row %= args.seq_len;
        const auto num_threads = static_cast<unsigned>(args.num_rows * packs_per_half);
        const dim3 blocks(groups, (num_threads + kThreads - 1) / kThreads);
        launch({"rope", blocks, kThreads, stream}, rope_kernel<T, kCount>, args, num_threads);
        args.x += most_rows * args.x_stride, args.y += most_rows * args.y_stride;
        args.first_row += most_rows;
    }
}

}  // namespace

template <class T>
void rope(const Rope<T>& args, GpuStream stream) {
    if (args.num_heads == 0 || args.half == 0) return;
    const int64_t sizes = args.half | args.x_stride | args.y_stride;
    const bool packed = in_packs<T>(sizes, args.x, args.y, args.cos, args.sin);
    packed ? launch_rope<T, kPack<T>>(args, stream) : launch_rope<T, 1>(args, stream);
}

template void rope(const Rope<float>&, GpuStream);
template void rope(const Rope<BFloat16>&, GpuStream);
template void rope(const Rope<Half>&, GpuStream);

}  // namespace argosy::kernels::cuda
