// The arguments of the kernels that choose experts for tokens and sort slots by expert (ops/routing.h). They
// exist for GPUs; on a processor ops/routing.cpp has the loops.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace argosy::kernels {

/// How a layer chooses experts for its tokens.
struct Router {
    enum class Score { Softmax, Sigmoid };

    int64_t num_experts = 0, top_k = 0;
    Score score = Score::Softmax;
    /// Divides the weights of a token by their sum. The sum of sigmoids gets kMinSigmoidSum more.
    bool normalize = true;
    double scale = 1;  // of the weights
    /// Experts are in groups of equal size, and a token goes to experts of top_groups groups. A group's score
    /// is the sum of the two largest scores of its experts.
    int64_t num_groups = 1, top_groups = 1;
    bool operator==(const Router&) const = default;
};

inline constexpr double kMinSigmoidSum = 1e-20;    // as DeepSeek-V3 has it
inline constexpr int64_t kMaxRoutedExperts = 512;  // of the kernels

/// Reads a token's logits once. Takes about 10 operations an expert, and 20 for each choice, in each lane of
/// a warp.
struct Route {
    Router router;
    int64_t num_tokens;
    const float* logits;  // [num_tokens, num_experts]
    const float* bias;    // [num_experts], of the choice; null: none
    int32_t* experts;     // [num_tokens, top_k]
    float* weights;       // [num_tokens, top_k]
};

struct RouteBackward {
    Router router;
    int64_t num_tokens;
    const float* dweights;   // [num_tokens, top_k]
    const float* logits;     // [num_tokens, num_experts]
    const int32_t* experts;  // [num_tokens, top_k]
    float* dlogits;          // [num_tokens, num_experts]
};

/// Sorts slots by expert; the slots of an expert keep their order. The slots are read twice.
struct SortSlots {
    int64_t num_slots, num_experts;
    const int32_t* experts;  // [num_slots], each in [0, num_experts)
    int32_t* order;          // [num_slots]: row r is slot order[r]
    int64_t* counts;         // [num_experts]
};

/// rows[order[row]] = row.
struct InvertOrder {
    int64_t count;
    const int32_t* order;
    int32_t* rows;
};

}  // namespace argosy::kernels
