// How a layer chooses experts for its tokens, as data.
#pragma once

#include <cstdint>

namespace argosy::ops {

struct Router {
    enum class Score { Softmax, Sigmoid };

    int64_t num_experts = 0, top_k = 0;
    Score score = Score::Softmax;
    /// Divides the weights of a token by their sum. The sum of sigmoids gets 1e-20 more.
    bool normalize = true;
    double scale = 1;  // of the weights
    /// Experts are in groups of equal size, and a token goes to experts of top_groups groups. A group's score
    /// is the sum of the two largest scores of its experts.
    int64_t num_groups = 1, top_groups = 1;
    bool operator==(const Router&) const = default;
};

}  // namespace argosy::ops
