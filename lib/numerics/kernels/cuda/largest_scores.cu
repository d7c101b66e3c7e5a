// The largest attention scores above a threshold.
//
// A warp takes 32 adjacent queries of a head. The log-sum-exp of a query is at least its largest score, so a
// query matters only if its log-sum-exp is above the threshold and above the scores that the warp has found.
// The warp computes the scores of the query with the largest log-sum-exp first, and ends when no other query
// matters.
//
// Cost: without a query above the threshold, 4 bytes of log_sum_exp for each query and head. A query that is
// computed reads its visible keys from the caches, with 2 * head_dim FLOP for each.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kernels.h"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kKeysAtOnce = 2;  // of a lane

__device__ float warp_max(float x) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
    }
    return x;
}

/// The largest product of a query and every 32nd key, from this lane's on.
template <class T, int kCount>
__device__ float largest_product(const T* query, const T* keys, int64_t stride, int64_t num_keys,
                                 int64_t head_dim) {
    float largest = -INFINITY;
    for (int64_t begin = threadIdx.x % kWarp; begin < num_keys; begin += kWarp * kKeysAtOnce) {
        const T* key[kKeysAtOnce];
        float sums[kKeysAtOnce] = {};
#pragma unroll
        for (int j = 0; j < kKeysAtOnce; ++j) {
            const int64_t own = begin + j * kWarp;
            key[j] = keys + (own < num_keys ? own : begin) * stride;
        }
        for (int64_t i = 0; i < head_dim; i += kCount) {
            const auto of_query = load<kCount>(query + i);
            Elements<T, kCount> loaded[kKeysAtOnce];
#pragma unroll
            for (int j = 0; j < kKeysAtOnce; ++j) loaded[j] = load_elements<kCount>(key[j] + i);
#pragma unroll
            for (int j = 0; j < kKeysAtOnce; ++j) {
                const auto of_key = widened(loaded[j]);
#pragma unroll
                for (int e = 0; e < kCount; ++e) sums[j] = fmaf(of_query[e], of_key[e], sums[j]);
            }
        }
#pragma unroll
        for (const float sum : sums) largest = fmaxf(largest, sum);
    }
    return largest;
}

/// The largest score of a query of the block's sequence and head, in all lanes.
template <class T, int kCount>
__device__ float largest_score(const LargestScores<T>& args, int64_t query) {
    const AttentionShape& shape = args.shape;
    const int64_t sequence = blockIdx.z, head = blockIdx.y, token = sequence * shape.num_queries + query;
    // as AttentionShape::first_key()
    int64_t reach = shape.window - 1;
    if (shape.positions != nullptr && shape.positions[token] < reach) reach = shape.positions[token];
    const int64_t place = shape.query_offset + query, first = place > reach ? place - reach : 0;
    const int64_t end = place + 1 < shape.num_keys ? place + 1 : shape.num_keys;
    const int key_head = static_cast<int>(blockIdx.y) / static_cast<int>(shape.num_heads);
    const T* const q = args.q.data + token * args.q.stride + head * shape.head_dim;
    const T* const k = args.k.data + (sequence * shape.num_keys + first) * args.k.stride;
    return shape.scale * warp_max(largest_product<T, kCount>(q, k + key_head * shape.head_dim, args.k.stride,
                                                             end - first, shape.head_dim));
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) largest_scores_kernel(LargestScores<T> args) {
    const int lane = threadIdx.x % kWarp;
    const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x - lane;
    const int64_t num_queries = args.shape.num_queries, row = int64_t{blockIdx.z} * gridDim.y + blockIdx.y;
    float waiting = -INFINITY;  // the log-sum-exp of this lane's query until its scores are computed
    if (first + lane < num_queries) waiting = args.log_sum_exp[row * num_queries + first + lane];
    float largest = args.threshold;
    for (float next = warp_max(waiting); next > largest; next = warp_max(waiting)) {
        const int chosen = __ffs(static_cast<int>(__ballot_sync(kAllLanes, waiting == next))) - 1;
        if (lane == chosen) waiting = -INFINITY;
        largest = fmaxf(largest, largest_score<T, kCount>(args, first + chosen));
    }
    // The bits of a number above 0, as a signed integer, are above those of smaller and of negative numbers.
    if (lane == 0 && largest > args.threshold) {
        atomicMax(reinterpret_cast<int*>(args.largest + blockIdx.y), __float_as_int(largest));
    }
}

}  // namespace

template <class T>
void largest_scores(const LargestScores<T>& args, GpuStream stream) {
    const AttentionShape& shape = args.shape;
    const int64_t num_heads = args.num_key_heads * shape.num_heads;
    if (shape.num_queries == 0 || num_heads == 0 || args.num_sequences == 0) return;
    const bool packed = in_packs<T>(shape.head_dim | args.q.stride | args.k.stride, args.q.data, args.k.data);
    const dim3 blocks(static_cast<unsigned>(ceil_div(shape.num_queries, kThreads)),
                      static_cast<unsigned>(num_heads), static_cast<unsigned>(args.num_sequences));
    launch({"largest_scores", blocks, kThreads, stream},
           packed ? largest_scores_kernel<T, kPack<T>> : largest_scores_kernel<T, 1>, args);
}

template void largest_scores(const LargestScores<float>&, GpuStream);
template void largest_scores(const LargestScores<BFloat16>&, GpuStream);

}  // namespace argosy::kernels::cuda
