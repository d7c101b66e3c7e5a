// The choice of experts and its gradient on GPUs. A warp computes one token: lane l holds the experts l, l +
// 32, and so on. All sums over chosen experts are in the order of the slots; the sum of a softmax is one over
// lanes.
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"

namespace argosy::kernels::cuda {
namespace {

constexpr int kThreads = 128, kTokensPerBlock = kThreads / kWarp;

/// The number of this lane's expert i.
__device__ inline int expert_of(int i) { return i * kWarp + static_cast<int>(threadIdx.x % kWarp); }

/// A number for each expert of the block's tokens.
template <int kPerLane>
using BlockMemory = Shared<float, kTokensPerBlock * kPerLane * kWarp>;

template <int kPerLane>
__device__ int begin_of_warp() {
    return static_cast<int>(threadIdx.x / kWarp) * kPerLane * kWarp;
}

/// The scores of a token; 0 for experts that do not exist.
template <int kPerLane>
__device__ Floats<kPerLane> scores_of(const Router& router, const float* logits) {
    Floats<kPerLane> scores;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
        scores[i] = expert_of(i) < router.num_experts ? logits[expert_of(i)] : -INFINITY;
    if (router.score == Router::Score::Sigmoid) {
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) scores[i] = 1.0F / (1.0F + expf(-scores[i]));
        return scores;
    }
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) largest = fmaxf(largest, scores[i]);
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
        scores[i] = expf(scores[i] - largest);
        sum += scores[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) scores[i] = scores[i] / sum;
    return scores;
}

/// A positive number that is larger for a larger score, and equal for equal ones. NaN counts as larger than
/// all numbers.
__device__ inline uint32_t key_of(float score) {
    if (score != score) return ~0U;
    const uint32_t bits = __float_as_uint(score + 0.0F);  // -0 becomes 0
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000;
}

/// Keys of the numbers l, l + 32, ... in lane l. Those that do not exist, or are taken, are 0.
template <int kPerLane>
struct Keys {
    uint32_t values[kPerLane];

    /// Returns the number of the largest key, the lowest one of equal keys, and takes it. REQUIRES: all lanes
    /// call it, and a key is left.
    __device__ int take_largest() {
        uint32_t best = 0;
        unsigned number = 0;
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
            if (values[i] > best) best = values[i], number = static_cast<unsigned>(expert_of(i));
        }
        const uint32_t largest = __reduce_max_sync(kAllLanes, best);
        const auto found = static_cast<int>(__reduce_min_sync(kAllLanes, best == largest ? number : ~0U));
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
            if (found == expert_of(i)) values[i] = 0;
        }
        return found;
    }
};

/// The sum of the two largest of `count` scores in the block's memory.
template <class Memory>
__device__ float sum_of_two_largest(Memory& scores, int begin, int count) {
    uint32_t first_key = 0, second_key = 0;
    float first = 0, second = 0;
    for (int i = begin; i < begin + count; ++i) {
        const float score = scores[i];
        const uint32_t key = key_of(score);
        if (key > first_key) {
            second = first, second_key = first_key, first = score, first_key = key;
        } else if (key > second_key) {
            second = score, second_key = key;
        }
    }
    return first + second;
}

/// Makes the keys of experts in all but the best groups those of -infinity. REQUIRES: `memory` has the
/// token's choices.
template <int kPerLane>
__device__ void leave_groups(const Router& router, BlockMemory<kPerLane>& memory, Keys<kPerLane>& keys) {
    const int size = static_cast<int>(router.num_experts / router.num_groups);
    Keys<kPerLane> groups;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
        const int group = expert_of(i), begin = begin_of_warp<kPerLane>() + group * size;
        groups.values[i] = group < router.num_groups ? key_of(sum_of_two_largest(memory, begin, size)) : 0;
    }
    unsigned stay = 0;
    for (int64_t rank = 0; rank < router.top_groups; ++rank) {
        const int group = groups.take_largest();
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
            if (expert_of(i) / size == group) stay |= 1U << i;
        }
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
        if ((stay >> i & 1) == 0 && keys.values[i] != 0) keys.values[i] = key_of(-INFINITY);
    }
}

template <int kPerLane>
__device__ Keys<kPerLane> keys_of_choices(const Route& args, const Floats<kPerLane>& scores,
                                          BlockMemory<kPerLane>& memory) {
    Keys<kPerLane> keys;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
        const int expert = expert_of(i);
        const bool exists = expert < args.router.num_experts;
        const float choice = exists && args.bias != nullptr ? scores[i] + args.bias[expert] : scores[i];
        keys.values[i] = exists ? key_of(choice) : 0;
        memory[begin_of_warp<kPerLane>() + expert] = choice;
    }
    if (args.router.top_groups == args.router.num_groups) return keys;
    __syncwarp();
    leave_groups<kPerLane>(args.router, memory, keys);
    return keys;
}

template <int kPerLane>
__global__ void __launch_bounds__(kThreads) route_kernel(Route args) {
    __shared__ BlockMemory<kPerLane> memory;
    const Router& router = args.router;
    const int64_t token = int64_t{blockIdx.x} * kTokensPerBlock + threadIdx.x / kWarp;
    if (token >= args.num_tokens) return;
    const auto scores = scores_of<kPerLane>(router, args.logits + token * router.num_experts);
    auto keys = keys_of_choices<kPerLane>(args, scores, memory);
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    int32_t* experts = args.experts + token * router.top_k;
    float* weights = args.weights + token * router.top_k;
    float sum = router.score == Router::Score::Sigmoid ? static_cast<float>(kMinSigmoidSum) : 0.0F;
    for (int slot = 0; slot < router.top_k; ++slot) {
        const int expert = keys.take_largest();
        float score = 0;
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
            if (expert == expert_of(i)) score = scores[i];
        }
        score = __shfl_sync(kAllLanes, score, expert % kWarp);
        sum += score;
        if (lane == slot % kWarp) experts[slot] = expert, weights[slot] = score;
    }
    if (!router.normalize) sum = 1;
    for (int slot = lane; slot < router.top_k; slot += kWarp)
        weights[slot] = weights[slot] / sum * static_cast<float>(router.scale);
}

/// A token's chosen experts in the order of the slots.
struct Chosen {
    const int32_t* experts;
    int count;
};

/// Calls visit(slot, expert, its score) for each slot.
template <class Memory, class Visit>
__device__ void for_each_slot(const Chosen& chosen, Memory& scores, int begin, const Visit& visit) {
    for (int slot = 0; slot < chosen.count; ++slot)
        visit(slot, chosen.experts[slot], scores[begin + chosen.experts[slot]]);
}

template <int kPerLane>
__global__ void __launch_bounds__(kThreads) route_backward_kernel(RouteBackward args) {
    __shared__ BlockMemory<kPerLane> memory;
    const Router& router = args.router;
    const int64_t token = int64_t{blockIdx.x} * kTokensPerBlock + threadIdx.x / kWarp;
    if (token >= args.num_tokens) return;
    const int begin = begin_of_warp<kPerLane>();
    const auto scores = scores_of<kPerLane>(router, args.logits + token * router.num_experts);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) memory[begin + expert_of(i)] = scores[i];
    __syncwarp();
    const float* dweights = args.dweights + token * router.top_k;
    const Chosen chosen = {args.experts + token * router.top_k, static_cast<int>(router.top_k)};
    const bool softmax = router.score == Router::Score::Softmax;
    const auto scale = static_cast<float>(router.scale);

    // 1. the scores: w = scale s / sum
    float sum = softmax ? 0.0F : static_cast<float>(kMinSigmoidSum), through_sum = 0, through_softmax = 0;
    for_each_slot(chosen, memory, begin, [&](int, int, float score) { sum += score; });
    if (!router.normalize) sum = 1;
    const auto add_sum = [&](int slot, int, float score) { through_sum += dweights[slot] * score / sum; };
    if (router.normalize) for_each_slot(chosen, memory, begin, add_sum);
    const auto dscore = [&](int slot) { return scale * (dweights[slot] - through_sum) / sum; };

    // 2. the logits
    const auto add_softmax = [&](int slot, int, float score) { through_softmax += dscore(slot) * score; };
    if (softmax) for_each_slot(chosen, memory, begin, add_softmax);
    Floats<kPerLane> dlogits;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) dlogits[i] = softmax ? -scores[i] * through_softmax : 0.0F;
    for_each_slot(chosen, memory, begin, [&](int slot, int expert, float score) {
        const float more = dscore(slot) * (softmax ? score : score * (1.0F - score));
#pragma unroll
        for (int i = 0; i < kPerLane; ++i)
            dlogits[i] = expert == expert_of(i) ? dlogits[i] + more : dlogits[i];
    });
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
        if (expert_of(i) < router.num_experts)
            args.dlogits[token * router.num_experts + expert_of(i)] = dlogits[i];
    }
}

/// Calls visit(number of experts in a lane).
template <class Visit>
void with_experts_per_lane(int64_t num_experts, const Visit& visit) {
    if (num_experts <= kWarp) return visit(std::integral_constant<int, 1>());
    if (num_experts <= 2 * kWarp) return visit(std::integral_constant<int, 2>());
    if (num_experts <= 4 * kWarp) return visit(std::integral_constant<int, 4>());
    if (num_experts <= 8 * kWarp) return visit(std::integral_constant<int, 8>());
    static_assert(kMaxRoutedExperts == 16 * kWarp);
    visit(std::integral_constant<int, 16>());
}

unsigned blocks_of(int64_t num_tokens) {
    return static_cast<unsigned>(ceil_div(num_tokens, kTokensPerBlock));
}

}  // namespace

void route(const Route& args, GpuStream stream) {
    if (args.num_tokens == 0) return;
    with_experts_per_lane(args.router.num_experts, [&](auto per_lane) {
        launch({"route", blocks_of(args.num_tokens), kThreads, stream}, route_kernel<per_lane()>, args);
    });
}

void route_backward(const RouteBackward& args, GpuStream stream) {
    if (args.num_tokens == 0) return;
    with_experts_per_lane(args.router.num_experts, [&](auto per_lane) {
        launch({"route_backward", blocks_of(args.num_tokens), kThreads, stream},
               route_backward_kernel<per_lane()>, args);
    });
}

}  // namespace argosy::kernels::cuda
