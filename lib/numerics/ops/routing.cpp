#include "ops/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "ops/embedding.h"
#include "ops/expert_scores.h"
#include "ops/kernel_calls.h"
#include "ops/numerics.h"
#include "ops/planned_gpu.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

using kernels::kMinSigmoidSum;

void check(const at::Tensor& logits, const Router& router) {
    ARGOSY_CHECK(logits.dim() == 2 && logits.size(1) == router.num_experts, "logits of {} for {} experts",
                 logits.size(-1), router.num_experts);
    ARGOSY_CHECK(router.num_groups > 0 && router.num_experts % router.num_groups == 0 &&
                     router.top_groups > 0 && router.top_groups <= router.num_groups,
                 "{} of {} groups of {} experts", router.top_groups, router.num_groups, router.num_experts);
    ARGOSY_CHECK(
        router.top_k > 0 && router.top_k <= router.num_experts / router.num_groups * router.top_groups,
        "{} of {} experts", router.top_k, router.num_experts / router.num_groups * router.top_groups);
    ARGOSY_CHECK(logits.size(0) * router.top_k <= std::numeric_limits<int32_t>::max(),
                 "{} tokens have more slots than int32 can number", logits.size(0));
}

/// Whether a GPU's kernels compute with these logits, or loops of this file on a processor, or either stands
/// for that without data.
bool has_loops(const at::Tensor& logits) {
    return has_kernels(logits) && logits.scalar_type() == at::kFloat &&
           (!counts_as_gpu(logits) || logits.size(1) <= kernels::kMaxRoutedExperts);
}

// The loops. Results for a token depend on nothing else, so the number of threads does not matter.

/// Writes the places of the `count` largest values to `found`, the largest first. NaN counts as larger than
/// numbers, so that it shows.
void find_largest(const float* values, int64_t num_values, int64_t count, int32_t* found) {
    const auto above = [&](float a, float b) { return a > b || (std::isnan(a) && !std::isnan(b)); };
    int64_t num_found = 0;
    for (int64_t i = 0; i < num_values; ++i) {
        if (num_found == count && !above(values[i], values[found[count - 1]])) continue;
        int64_t place = num_found < count ? num_found++ : count - 1;
        for (; place > 0 && above(values[i], values[found[place - 1]]); --place)
            found[place] = found[place - 1];
        found[place] = static_cast<int32_t>(i);
    }
}

/// The scores of one token.
void find_scores(const float* logits, const Router& router, float* scores) {
    if (router.score == Router::Score::Sigmoid) {
        for (int64_t i = 0; i < router.num_experts; ++i) scores[i] = 1 / (1 + std::exp(-logits[i]));
        return;
    }
    float largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < router.num_experts; ++i) largest = std::max(largest, logits[i]);
    for (int64_t i = 0; i < router.num_experts; ++i) sum += scores[i] = std::exp(logits[i] - largest);
    for (int64_t i = 0; i < router.num_experts; ++i) scores[i] /= sum;
}

float sum_of_chosen(const float* scores, const int32_t* experts, const Router& router) {
    float sum = router.score == Router::Score::Sigmoid ? static_cast<float>(kMinSigmoidSum) : 0;
    for (int64_t slot = 0; slot < router.top_k; ++slot) sum += scores[experts[slot]];
    return sum;
}

/// Chooses for one token after the other.
class Chooser {
  public:
    Chooser(const Router& router, const float* bias) : router_(router), bias_(bias) {}

    void choose(const float* logits, int32_t* experts, float* weights) {
        find_scores(logits, router_, scores_.data());
        choices_ = scores_;
        for (int64_t i = 0; bias_ != nullptr && i < router_.num_experts; ++i) choices_[i] += bias_[i];
        if (router_.top_groups < router_.num_groups) leave_groups();
        find_largest(choices_.data(), router_.num_experts, router_.top_k, experts);
        const auto scale = static_cast<float>(router_.scale);
        const float sum = router_.normalize ? sum_of_chosen(scores_.data(), experts, router_) : 1;
        for (int64_t slot = 0; slot < router_.top_k; ++slot)
            weights[slot] = scores_[experts[slot]] / sum * scale;
    }

  private:
    /// Makes the choices in all but the best groups -infinity.
    void leave_groups() {
        const int64_t size = router_.num_experts / router_.num_groups;
        for (int64_t group = 0; group < router_.num_groups; ++group) {
            int32_t best[2];
            const float* choices = &choices_[group * size];
            find_largest(choices, size, std::min<int64_t>(2, size), best);
            groups_[group] = choices[best[0]] + (size > 1 ? choices[best[1]] : 0);
        }
        find_largest(groups_.data(), router_.num_groups, router_.top_groups, chosen_.data());
        std::vector<float> left(choices_.size(), -INFINITY);
        for (const int32_t group : chosen_) std::copy_n(&choices_[group * size], size, &left[group * size]);
        choices_.swap(left);
    }

    const Router& router_;
    const float* bias_;
    std::vector<float> scores_ = std::vector<float>(router_.num_experts), choices_ = scores_,
                       groups_ = std::vector<float>(router_.num_groups);
    std::vector<int32_t> chosen_ = std::vector<int32_t>(router_.top_groups);
};

void choose_in_loops(const at::Tensor& logits, const Router& router, const at::Tensor& bias,
                     const Routing& routing) {
    const float *of_tokens = elements<float>(logits), *of_experts = elements<float>(bias);
    auto* experts = mutable_elements<int32_t>(routing.experts);
    auto* weights = mutable_elements<float>(routing.weights);
    if (gpu::holds(logits)) {
        return kernels::gpu_table()->route({router, logits.size(0), of_tokens, of_experts, experts, weights},
                                           gpu::current_stream());
    }
    const int64_t k = router.top_k, min_tokens = min_rows_per_thread(16 * router.num_experts);
    run_on_parts(logits, logits.size(0), min_tokens, [&](int64_t begin, int64_t end) {
        Chooser chooser(router, of_experts);
        for (int64_t token = begin; token < end; ++token) {
            chooser.choose(of_tokens + token * router.num_experts, experts + token * k, weights + token * k);
        }
    });
}

/// Sorts the slots by counting.
void sort_in_loops(const Routing& routing) {
    if (routing.experts.is_meta()) return;
    const auto* experts = elements<int32_t>(routing.experts);
    auto* order = mutable_elements<int32_t>(routing.order);
    auto* counts = mutable_elements<int64_t>(routing.counts);
    const int64_t num_experts = routing.counts.numel(), num_slots = routing.experts.numel();
    if (gpu::holds(routing.experts)) {
        const auto& gpu = *kernels::gpu_table();
        const kernels::SortSlots args = {num_slots, num_experts, experts, order, counts};
        const at::Tensor memory = scratch(gpu.sort_slots_scratch_bytes(args), routing.experts);
        return gpu.sort_slots(args, mutable_elements<uint8_t>(memory), gpu::current_stream());
    }
    std::fill_n(counts, num_experts, 0);
    for (int64_t slot = 0; slot < num_slots; ++slot) ++counts[experts[slot]];
    std::vector<int64_t> next(num_experts);
    for (int64_t i = 1; i < num_experts; ++i) next[i] = next[i - 1] + counts[i - 1];
    for (int64_t slot = 0; slot < num_slots; ++slot)
        order[next[experts[slot]]++] = static_cast<int32_t>(slot);
}

/// The gradient of one token's logits.
void differentiate(const float* dweights, const float* scores, const int32_t* experts, const Router& router,
                   float* dlogits) {
    const auto scale = static_cast<float>(router.scale);
    const float sum = router.normalize ? sum_of_chosen(scores, experts, router) : 1;
    // 1. the scores: w = scale s / sum
    float through_sum = 0, through_softmax = 0;
    for (int64_t slot = 0; router.normalize && slot < router.top_k; ++slot)
        through_sum += dweights[slot] * scores[experts[slot]] / sum;
    const auto dscore = [&](int64_t slot) { return scale * (dweights[slot] - through_sum) / sum; };
    // 2. the logits
    const bool softmax = router.score == Router::Score::Softmax;
    for (int64_t slot = 0; softmax && slot < router.top_k; ++slot)
        through_softmax += dscore(slot) * scores[experts[slot]];
    for (int64_t i = 0; i < router.num_experts; ++i) dlogits[i] = softmax ? -scores[i] * through_softmax : 0;
    for (int64_t slot = 0; slot < router.top_k; ++slot) {
        const float score = scores[experts[slot]];
        dlogits[experts[slot]] += dscore(slot) * (softmax ? score : score * (1 - score));
    }
}

at::Tensor backward_in_loops(const at::Tensor& dweights, const at::Tensor& logits, const at::Tensor& experts,
                             const Router& router) {
    at::Tensor dlogits = at::empty_like(logits);
    const float *upper = elements<float>(dweights), *of_tokens = elements<float>(logits);
    const auto* chosen = elements<int32_t>(experts);
    auto* out = mutable_elements<float>(dlogits);
    const int64_t k = router.top_k, size = router.num_experts;
    if (gpu::holds(logits)) {
        kernels::gpu_table()->route_backward({router, logits.size(0), upper, of_tokens, chosen, out},
                                             gpu::current_stream());
        return dlogits;
    }
    run_on_parts(logits, logits.size(0), min_rows_per_thread(16 * size), [&](int64_t begin, int64_t end) {
        std::vector<float> scores(size);
        for (int64_t token = begin; token < end; ++token) {
            find_scores(of_tokens + token * size, router, scores.data());
            differentiate(upper + token * k, scores.data(), chosen + token * k, router, out + token * size);
        }
    });
    return dlogits;
}

// The same as compositions of LibTorch's operations.

/// The places of the `count` largest values of each row. topk() promises no order of equal values.
at::Tensor largest_of(const at::Tensor& values, int64_t count) {
    return std::get<1>(values.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true)).narrow(1, 0, count);
}

at::Tensor in_best_groups(const at::Tensor& choices, const Router& router) {
    const int64_t size = router.num_experts / router.num_groups;
    const at::Tensor grouped = choices.view({-1, router.num_groups, size});
    const at::Tensor scores = std::get<0>(grouped.topk(std::min<int64_t>(2, size))).sum(2);
    at::Tensor left = at::ones(scores.sizes(), scores.options().dtype(at::kBool));
    left.scatter_(1, largest_of(scores, router.top_groups), false);
    return grouped.masked_fill(left.unsqueeze(2), -INFINITY).view(choices.sizes());
}

/// The routing of tokens to these experts [tokens, top_k], whose scores are among `scores`.
Routing routing_to(const at::Tensor& experts, const at::Tensor& scores, const Router& router) {
    const at::Tensor chosen = scores.gather(1, experts);
    const at::Tensor order =
        std::get<1>(experts.reshape({-1}).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
    at::Tensor goes_to = at::zeros(scores.sizes(), scores.options().dtype(at::kBool));
    goes_to.scatter_(1, experts, true);
    return {.experts = experts.to(at::kInt).contiguous(),
            .weights = (router.normalize ? shares_of_sum(chosen, router) : chosen) * router.scale,
            .order = order.to(at::kInt),
            .counts = goes_to.sum(0)};
}

Routing plain_route(const at::Tensor& logits, const Router& router, const at::Tensor& bias) {
    const at::Tensor scores = expert_scores(logits, router);
    at::Tensor choices = bias.defined() ? scores + bias : scores;
    if (router.top_groups < router.num_groups) choices = in_best_groups(choices, router);
    return routing_to(largest_of(choices, router.top_k), scores, router);
}

at::Tensor plain_backward(const at::Tensor& dweights, const at::Tensor& logits, const at::Tensor& experts,
                          const Router& router) {
    const at::Tensor scores = expert_scores(logits, router), index = experts.to(at::kLong);
    at::Tensor dchosen = dweights * router.scale;
    if (router.normalize) dchosen = shares_of_sum_backward(dchosen, scores.gather(1, index), router);
    return expert_scores_backward(at::zeros_like(scores).scatter(1, index, dchosen), scores, router);
}

/// The rows of the slots: the inverse of `order`.
at::Tensor rows_of_slots(const at::Tensor& order) {
    at::Tensor rows = at::empty_like(order);
    const auto* slots = elements<int32_t>(order);
    auto* out = mutable_elements<int32_t>(rows);
    if (gpu::holds(order)) {
        kernels::gpu_table()->invert_order({order.numel(), slots, out}, gpu::current_stream());
        return rows;
    }
    run_on_parts(order, order.numel(), kMinElementsPerThread, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) out[slots[row]] = static_cast<int32_t>(row);
    });
    return rows;
}

at::Tensor kernel_combine(const at::Tensor& y, const at::Tensor& rows, int64_t num_slots) {
    const int64_t size = y.size(1);
    at::Tensor x = at::empty({y.size(0) / num_slots, size}, y.options());
    with_element_type(y.scalar_type(), [&]<class T>(T) {
        const T* of_rows = elements<T>(y);
        const auto* row = elements<int32_t>(rows);
        T* out = mutable_elements<T>(x);
        const auto part = [&](int64_t begin, int64_t end) {
            return kernels::Combine<T>{.num_tokens = end - begin,
                                       .row_size = size,
                                       .num_slots = num_slots,
                                       .rows = row + begin * num_slots,
                                       .y = of_rows,
                                       .x = out + begin * size};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::combine, &kernels::GpuTypedKernels<T>::combine, y,
                       x.size(0), num_slots * size, part);
    });
    return x;
}

at::Tensor plain_combine(const at::Tensor& y, const at::Tensor& rows, int64_t num_slots) {
    const at::Tensor of_tokens = rows.view({-1, num_slots});
    at::Tensor sum = widened(at::index(y, {of_tokens.select(1, 0)}));
    for (int64_t slot = 1; slot < num_slots; ++slot) sum.add_(at::index(y, {of_tokens.select(1, slot)}));
    return sum.to(y.scalar_type());
}

}  // namespace

Routing route(const at::Tensor& logits, const Router& router, const at::Tensor& bias) {
    check(logits, router);
    const at::Tensor of_experts = bias.defined() ? bias.to(logits.scalar_type()).contiguous() : bias;
    Routing routing;
    if (has_loops(logits)) {
        const auto integers = logits.options().dtype(at::kInt);
        routing = {.experts = at::empty({logits.size(0), router.top_k}, integers),
                   .weights = at::empty({logits.size(0), router.top_k}, logits.options()),
                   .order = at::empty({logits.size(0) * router.top_k}, integers),
                   .counts = at::empty({router.num_experts}, integers.dtype(at::kLong))};
        choose_in_loops(logits.contiguous(), router, of_experts, routing);
        sort_in_loops(routing);
    } else {
        routing = plain_route(logits, router, of_experts);
    }
    note_pass({logits, routing.experts, routing.weights, routing.order});
    return routing;
}

Routing route_in_turn(const at::Tensor& logits, const Router& router, int64_t first) {
    check(logits, router);
    const at::Tensor slots =
        at::arange(first, first + logits.size(0) * router.top_k, logits.options().dtype(at::kLong));
    const at::Tensor experts = slots.remainder(router.num_experts).view({-1, router.top_k});
    Routing routing = routing_to(experts, expert_scores(logits, router), router);
    note_pass({logits, routing.experts, routing.weights, routing.order});
    return routing;
}

at::Tensor route_backward(const at::Tensor& dweights, const at::Tensor& logits, const Routing& routing,
                          const Router& router) {
    check(logits, router);
    const at::Tensor& experts = routing.experts;
    note_pass({logits, logits, dweights, experts});
    if (!has_loops(logits)) return plain_backward(dweights, logits, experts, router);
    return backward_in_loops(dweights.contiguous(), logits.contiguous(), experts.contiguous(), router);
}

at::Tensor permute(const at::Tensor& x, const at::Tensor& order, int64_t num_slots) {
    return embedding(x, order.div(num_slots, "trunc").to(at::kLong), /*begin=*/0);
}

at::Tensor combine(const at::Tensor& y, const at::Tensor& order, int64_t num_slots) {
    ARGOSY_CHECK(y.size(0) == order.numel() && order.numel() % num_slots == 0, "{} rows for {} slots of {}",
                 y.size(0), order.numel(), num_slots);
    const at::Tensor rows = rows_of_slots(order.contiguous());
    at::Tensor x =
        has_kernels(y) ? kernel_combine(y.contiguous(), rows, num_slots) : plain_combine(y, rows, num_slots);
    note_pass({y, x});
    return x;
}

}  // namespace argosy::ops
