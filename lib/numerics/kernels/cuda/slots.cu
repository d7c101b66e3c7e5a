// The slots of tokens on GPUs: their order by expert, and the sums of a token's slots.
//
// Slots are sorted by counting, without atomic operations, so that slots of an expert keep their order. A
// warp walks through a part, adjacent slots.
// 1. Each part counts its slots of each expert.
// 2. For each expert, a warp replaces the counts of the parts by the number of slots in earlier parts.
// 3. Each part adds where the expert's rows begin, and walks again to give each slot its row.
// COST: 8 bytes for each slot and 12 for each expert of a part of 256 slots; three launches.
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/rows.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 128, kPartsPerBlock = kThreads / kWarp;
constexpr int64_t kMinPart = 256, kMaxParts = 1024;

struct Parts {
    int64_t size, count;
    int32_t* counts;  // [num_experts, count]
};
Parts parts_of(int64_t num_slots, void* scratch) {
    const int64_t needed = ceil_div(ceil_div(num_slots, kMaxParts), kWarp) * kWarp;
    const int64_t size = needed > kMinPart ? needed : kMinPart;
    return {size, ceil_div(num_slots, size), static_cast<int32_t*>(scratch)};
}

/// A number for each expert, of each warp of a block.
using Counters = Shared<int32_t, kPartsPerBlock * kMaxRoutedExperts>;

/// Calls visit(slot, its number among the slots of its expert) for the slots of a part; an expert's numbers
/// start at its counter, which is raised. REQUIRES: all lanes of the warp call walk(). The warp may read the
/// counters afterwards.
template <class Visit>
__device__ void walk(const SortSlots& args, const Parts& parts, int64_t part, Counters& counters, int begin,
                     const Visit& visit) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    const int64_t end_of_part = (part + 1) * parts.size;
    const int64_t end = end_of_part < args.num_slots ? end_of_part : args.num_slots;
    for (int64_t first = part * parts.size; first < end; first += kWarp) {
        const int64_t slot = first + lane;
        const bool exists = slot < end;
        const int expert = exists ? args.experts[slot] : -1;
        const unsigned equal = __match_any_sync(kAllLanes, expert);
        const int num_before = __popc(equal & ((1U << lane) - 1));
        if (exists) visit(slot, counters[begin + expert] + num_before);
        __syncwarp();
        if (exists && num_before == 0) counters[begin + expert] += __popc(equal);
        __syncwarp();
    }
}

/// Calls put(i, the sum of get(0) to get(i - 1)) for i < count, and returns the sum of all. REQUIRES: all
/// lanes of a warp call it.
template <class Get, class Put>
__device__ int32_t sums_before(int64_t count, const Get& get, const Put& put) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    const int64_t per_lane = (count + kWarp - 1) / kWarp, begin = lane * per_lane;
    const int64_t end = begin + per_lane < count ? begin + per_lane : count;
    int32_t own = 0;
    for (int64_t i = begin; i < end; ++i) own += get(i);
    int32_t through = own;  // of the lanes up to this one
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
        const int32_t other = __shfl_sync(kAllLanes, through, lane >= distance ? lane - distance : lane);
        if (lane >= distance) through += other;
    }
    int32_t before = through - own;
    for (int64_t i = begin; i < end; ++i) {
        const int32_t number = get(i);
        put(i, before);
        before += number;
    }
    return __shfl_sync(kAllLanes, through, kWarp - 1);
}

__global__ void __launch_bounds__(kThreads) count_slots_kernel(SortSlots args, Parts parts) {
    __shared__ Counters counters;
    const int warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);
    const int64_t part = int64_t{blockIdx.x} * kPartsPerBlock + warp;
    const int begin = warp * static_cast<int>(kMaxRoutedExperts);
    if (part >= parts.count) return;
    for (int expert = lane; expert < args.num_experts; expert += kWarp) counters[begin + expert] = 0;
    __syncwarp();
    walk(args, parts, part, counters, begin, [](int64_t, int) {});
    for (int expert = lane; expert < args.num_experts; expert += kWarp)
        parts.counts[expert * parts.count + part] = counters[begin + expert];
}

__global__ void __launch_bounds__(kThreads) sum_parts_kernel(SortSlots args, Parts parts) {
    const int64_t expert = int64_t{blockIdx.x} * kPartsPerBlock + threadIdx.x / kWarp;
    if (expert >= args.num_experts) return;
    int32_t* counts = parts.counts + expert * parts.count;
    const int32_t all = sums_before(
        parts.count, [&](int64_t i) { return counts[i]; }, [&](int64_t i, int32_t sum) { counts[i] = sum; });
    if (threadIdx.x % kWarp == 0) args.counts[expert] = all;
}

__global__ void __launch_bounds__(kThreads) order_slots_kernel(SortSlots args, Parts parts) {
    __shared__ Counters counters;
    __shared__ Shared<int32_t, kMaxRoutedExperts> begins;  // of the experts' rows
    const int warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);
    if (warp == 0) {
        sums_before(
            args.num_experts, [&](int64_t i) { return static_cast<int32_t>(args.counts[i]); },
            [&](int64_t i, int32_t sum) { begins[static_cast<int>(i)] = sum; });
    }
    __syncthreads();
    const int64_t part = int64_t{blockIdx.x} * kPartsPerBlock + warp;
    const int begin = warp * static_cast<int>(kMaxRoutedExperts);
    if (part >= parts.count) return;
    for (int expert = lane; expert < args.num_experts; expert += kWarp)
        counters[begin + expert] = begins[expert] + parts.counts[expert * parts.count + part];
    __syncwarp();
    walk(args, parts, part, counters, begin,
         [&](int64_t slot, int row) { args.order[row] = static_cast<int32_t>(slot); });
}

__global__ void __launch_bounds__(kThreads) invert_order_kernel(InvertOrder args) {
    const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (row < args.count) args.rows[args.order[row]] = static_cast<int32_t>(row);
}

/// Adds kSlots rows of y, one after the other; all are loaded before the first is added.
template <int kSlots, class T, int kCount>
__device__ void add_slots(const int32_t* rows, const T* y, int64_t row_size, Floats<kCount>& sum) {
    Elements<T, kCount> loaded[kSlots];
#pragma unroll
    for (int i = 0; i < kSlots; ++i) loaded[i] = load_elements<kCount>(y + int64_t{rows[i]} * row_size);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
        const auto x = widened(loaded[i]);
#pragma unroll
        for (int k = 0; k < kCount; ++k) sum[k] += x[k];
    }
}

/// A thread adds some columns of a token's slots.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) combine_kernel(Combine<T> args) {
    const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount;
    if (i >= args.num_tokens * args.row_size) return;
    const auto token = static_cast<uint32_t>(i) / static_cast<uint32_t>(args.row_size);
    const T* y = args.y + (i - int64_t{token} * args.row_size);
    const int32_t* rows = args.rows + token * args.num_slots;
    Floats<kCount> sum;
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum[k] = -0.0F;  // -0 + x is x
    int64_t slot = 0;
    for (; slot + 8 <= args.num_slots; slot += 8) add_slots<8>(rows + slot, y, args.row_size, sum);
    const int64_t left = args.num_slots - slot;
    if ((left & 4) != 0) add_slots<4>(rows + slot, y, args.row_size, sum), slot += 4;
    if ((left & 2) != 0) add_slots<2>(rows + slot, y, args.row_size, sum), slot += 2;
    if ((left & 1) != 0) add_slots<1>(rows + slot, y, args.row_size, sum);
    store(args.x + i, sum);
}

unsigned blocks_of(int64_t count, int64_t per_block) {
    return static_cast<unsigned>(ceil_div(count, per_block));
}

}  // namespace

int64_t sort_slots_scratch_bytes(const SortSlots& args) {
    return args.num_experts * parts_of(args.num_slots, nullptr).count * int64_t{sizeof(int32_t)};
}

void sort_slots(const SortSlots& args, void* scratch, GpuStream stream) {
    const Parts parts = parts_of(args.num_slots, scratch);
    const unsigned blocks = blocks_of(parts.count, kPartsPerBlock);
    if (blocks > 0) launch({"count_slots", blocks, kThreads, stream}, count_slots_kernel, args, parts);
    launch({"sum_parts", blocks_of(args.num_experts, kPartsPerBlock), kThreads, stream}, sum_parts_kernel,
           args, parts);
    if (blocks > 0) launch({"order_slots", blocks, kThreads, stream}, order_slots_kernel, args, parts);
}

void invert_order(const InvertOrder& args, GpuStream stream) {
    const unsigned blocks = blocks_of(args.count, kThreads);
    if (blocks > 0) launch({"invert_order", blocks, kThreads, stream}, invert_order_kernel, args);
}

template <class T>
void combine(const Combine<T>& args, GpuStream stream) {
    if (args.row_size == 0) return;
    const bool packed = in_packs<T>(args.row_size, args.y, args.x);
    const auto kernel = packed ? combine_kernel<T, kPack<T>> : combine_kernel<T, 1>;
    const int64_t per_block = kThreads * (packed ? kPack<T> : 1),
                  max_tokens = max_rows_per_launch(args.row_size);
    for (Combine<T> left = args; left.num_tokens > 0;) {
        Combine<T> some = left;
        some.num_tokens = left.num_tokens < max_tokens ? left.num_tokens : max_tokens;
        launch({"combine", blocks_of(some.num_tokens * args.row_size, per_block), kThreads, stream}, kernel,
               some);
        left.num_tokens -= some.num_tokens;
        left.rows += some.num_tokens * args.num_slots, left.x += some.num_tokens * args.row_size;
    }
}

template void combine(const Combine<float>&, GpuStream);
template void combine(const Combine<BFloat16>&, GpuStream);

}  // namespace argosy::kernels::cuda
