#include "ops/balance.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "kernels/routing.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

bool is_softmax(const Router& router) { return router.score == Router::Score::Softmax; }

/// LibTorch's sigmoid() has other bits on other numbers of threads, softmax() of a row has not.
at::Tensor raw_scores(const at::Tensor& logits, const Router& router) {
    if (is_softmax(router)) return logits.softmax(1);
    return at::stack({logits, at::zeros_like(logits)}, 2).softmax(2).select(2, 0).contiguous();
}

at::Tensor sum_of_scores(const at::Tensor& scores, const Router& router) {
    const at::Tensor sum = scores.sum(1, /*keepdim=*/true);
    return is_softmax(router) ? sum : sum + kernels::kMinSigmoidSum;
}

}  // namespace

Routing route_in_turn(const at::Tensor& logits, const Router& router, int64_t first) {
    const auto integers = logits.options().dtype(at::kLong);
    const at::Tensor slots = at::arange(first, first + logits.size(0) * router.top_k, integers);
    const at::Tensor flat = slots.remainder(router.num_experts), experts = flat.view({-1, router.top_k});
    at::Tensor weights = raw_scores(logits, router).gather(1, experts);
    if (router.normalize) weights = weights / sum_of_scores(weights, router);
    note_pass({logits, experts, weights});
    return {.experts = experts.to(at::kInt),
            .weights = weights * router.scale,
            .order = std::get<1>(flat.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false)).to(at::kInt),
            .counts = at::zeros({router.num_experts}, integers).scatter_add_(0, flat, at::ones_like(flat))};
}

at::Tensor score_shares(const at::Tensor& logits, const Router& router) {
    const at::Tensor scores = raw_scores(logits, router);
    note_pass({logits, scores});
    return is_softmax(router) ? scores : scores / sum_of_scores(scores, router);
}

at::Tensor log_sum_exp(const at::Tensor& logits) {
    note_pass({logits});
    return logits.amax(1) - logits.log_softmax(1).amax(1);
}

at::Tensor balance_backward(const at::Tensor& dshares, double z_scale, const at::Tensor& logits,
                            const Router& router) {
    at::Tensor dlogits = at::zeros_like(logits);
    note_pass({logits, dshares, dlogits});
    if (z_scale != 0) {
        dlogits.add_(logits.softmax(1) * log_sum_exp(logits).unsqueeze(1), 2 * z_scale);
    }
    if (!dshares.defined()) return dlogits;
    const at::Tensor scores = raw_scores(logits, router);
    const at::Tensor sum = is_softmax(router) ? at::ones_like(scores) : sum_of_scores(scores, router);
    const at::Tensor dscores =
        (dshares - (dshares * scores).sum(1, /*keepdim=*/true) / sum) / sum;  // through the sum, too
    if (is_softmax(router)) return dlogits.add_(dscores * scores);
    return dlogits.add_(dscores * scores * (1 - scores));
}

}  // namespace argosy::ops
