// The choice of experts for one token, its gradient, and the order of slots, as plainly as possible and in
// fp64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/routing.h"

namespace argosy::kernels {

using Numbers = std::vector<double>;

inline Numbers plain_scores(const Router& router, std::span<const float> logits) {
    Numbers scores(logits.begin(), logits.end());
    if (router.score == Router::Score::Sigmoid) {
        for (double& x : scores) x = 1 / (1 + std::exp(-x));
        return scores;
    }
    const double largest = *std::ranges::max_element(scores);
    for (double& x : scores) x = std::exp(x - largest);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    for (double& x : scores) x /= sum;
    return scores;
}

/// The numbers of the `count` largest values, the largest first, equal ones by number.
inline std::vector<int32_t> plain_largest(const Numbers& values, int64_t count) {
    std::vector<int32_t> numbers(values.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    std::ranges::stable_sort(numbers, std::greater(), [&](int32_t i) { return values[i]; });
    numbers.resize(count);
    return numbers;
}

struct PlainChoice {
    std::vector<int32_t> experts;
    Numbers weights;
};
inline PlainChoice plain_route(const Router& router, std::span<const float> logits, const float* bias) {
    const Numbers scores = plain_scores(router, logits);
    Numbers choices = scores;
    for (int64_t i = 0; bias != nullptr && i < router.num_experts; ++i) choices[i] += double{bias[i]};
    const int64_t size = router.num_experts / router.num_groups;
    Numbers of_groups;
    for (auto begin = choices.begin(); begin != choices.end(); begin += size) {
        Numbers group(begin, begin + size);
        std::ranges::sort(group, std::greater());
        of_groups.push_back(group[0] + (size > 1 ? group[1] : 0));
    }
    Numbers left(choices.size(), -INFINITY);
    for (const int32_t group : plain_largest(of_groups, router.top_groups))
        std::copy_n(choices.begin() + group * size, size, left.begin() + group * size);
    PlainChoice made{plain_largest(left, router.top_k), {}};
    double sum = router.normalize ? 0 : 1;
    for (const int32_t expert : made.experts) sum += router.normalize ? scores[expert] : 0;
    for (const int32_t expert : made.experts) made.weights.push_back(router.scale * scores[expert] / sum);
    return made;
}

/// Returns the gradient of the logits.
inline Numbers plain_route_backward(const Router& router, std::span<const float> logits,
                                    std::span<const float> dweights, std::span<const int32_t> experts) {
    const Numbers scores = plain_scores(router, logits);
    double sum = 0, through_sum = 0, through_softmax = 0;
    for (const int32_t expert : experts) sum += scores[expert];
    for (size_t slot = 0; slot < experts.size(); ++slot)
        through_sum += double{dweights[slot]} * scores[experts[slot]] / sum;
    if (!router.normalize) sum = 1, through_sum = 0;
    Numbers gradient(scores.size());
    for (size_t slot = 0; slot < experts.size(); ++slot)
        gradient[experts[slot]] = router.scale * (double{dweights[slot]} - through_sum) / sum;
    for (size_t i = 0; i < scores.size(); ++i) through_softmax += gradient[i] * scores[i];
    const bool softmax = router.score == Router::Score::Softmax;
    for (size_t i = 0; i < scores.size(); ++i)
        gradient[i] = scores[i] * (softmax ? gradient[i] - through_softmax : gradient[i] * (1 - scores[i]));
    return gradient;
}

struct PlainOrder {
    std::vector<int32_t> order;
    std::vector<int64_t> counts;
};
inline PlainOrder plain_order(std::span<const int32_t> experts, int64_t num_experts) {
    PlainOrder made{std::vector<int32_t>(experts.size()), std::vector<int64_t>(num_experts)};
    std::iota(made.order.begin(), made.order.end(), 0);
    std::ranges::stable_sort(made.order, {}, [&](int32_t slot) { return experts[slot]; });
    for (const int32_t expert : experts) ++made.counts[expert];
    return made;
}

}  // namespace argosy::kernels
