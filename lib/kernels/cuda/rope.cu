#include "kernels/cuda/rope.h"

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;
/// A thread turns the same pairs of as many heads: angles are loaded once for all, and as many packs are on
/// their way.
constexpr int kHeads = 4;

/// Where in a row and its table a thread works.
struct Pairs {
    int64_t row, first_head, i;  // i: the first pair
};
__device__ inline Pairs pairs_of(int64_t thread, int64_t packs_per_half, int64_t groups_per_row, int count) {
    const int64_t group = thread / packs_per_half;
    return {group / groups_per_row, group % groups_per_row * kHeads, thread % packs_per_half * count};
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) rope_kernel(Rope<T> args, int64_t num_threads) {
    const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (thread >= num_threads) return;
    const auto [row, first_head, i] =
        pairs_of(thread, args.half / kCount, (args.num_heads + kHeads - 1) / kHeads, kCount);
    const int64_t angle = (args.first_row + row) % args.seq_len * args.half + i;
    const int64_t begin = (row * args.num_heads + first_head) * 2 * args.half + i;
    Elements<T, kCount> firsts[kHeads], seconds[kHeads];
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
        if (first_head + head >= args.num_heads) break;
        firsts[head] = load_elements<kCount>(args.x + begin + head * 2 * args.half);
        seconds[head] = load_elements<kCount>(args.x + begin + head * 2 * args.half + args.half);
    }
    const auto cos = load<kCount>(args.cos + angle), sin = load<kCount>(args.sin + angle);
    const float direction = args.turn == Turn::Forward ? 1.0F : -1.0F;
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
        if (first_head + head >= args.num_heads) break;
        const auto first = widened(firsts[head]), second = widened(seconds[head]);
        Floats<kCount> turned_first, turned_second;
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            const float s = sin[k] * direction;
            turned_first[k] = first[k] * cos[k] - second[k] * s;
            turned_second[k] = second[k] * cos[k] + first[k] * s;
        }
        store(args.y + begin + head * 2 * args.half, turned_first);
        store(args.y + begin + head * 2 * args.half + args.half, turned_second);
    }
}

template <class T, int kCount>
void launch_rope(const Rope<T>& args, GpuStream stream) {
    const int64_t groups_per_row = (args.num_heads + kHeads - 1) / kHeads;
    const int64_t num_threads = args.num_rows * groups_per_row * (args.half / kCount);
    const auto blocks = static_cast<unsigned>((num_threads + kThreads - 1) / kThreads);
    if (blocks > 0) launch({"rope", blocks, kThreads, stream}, rope_kernel<T, kCount>, args, num_threads);
}

}  // namespace

template <class T>
void rope(const Rope<T>& args, GpuStream stream) {
    const bool packed = in_packs<T>(args.half, args.x, args.y, args.cos, args.sin);
    packed ? launch_rope<T, kPack<T>>(args, stream) : launch_rope<T, 1>(args, stream);
}

template void rope(const Rope<float>&, GpuStream);
template void rope(const Rope<BFloat16>&, GpuStream);
template void rope(const Rope<Half>&, GpuStream);

}  // namespace argosy::kernels::cuda
