#include "ops/expert_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "ops/work.h"

namespace argosy::ops {
namespace {

bool is_softmax(const Router& router) { return router.score == Router::Score::Softmax; }

at::Tensor sum_of(const at::Tensor& scores, const Router& router) {
    const at::Tensor sum = scores.sum(1, /*keepdim=*/true);
    return is_softmax(router) ? sum : sum + kernels::kMinSigmoidSum;
}

}  // namespace

at::Tensor expert_scores(const at::Tensor& logits, const Router& router) {
    if (is_softmax(router)) return logits.softmax(1);
    // LibTorch's sigmoid() has other bits on other numbers of threads, softmax() of a row has not.
    return at::stack({logits, at::zeros_like(logits)}, 2).softmax(2).select(2, 0).contiguous();
}

at::Tensor expert_scores_backward(const at::Tensor& dscores, const at::Tensor& scores, const Router& router) {
    if (!is_softmax(router)) return dscores * scores * (1 - scores);
    return (dscores - (dscores * scores).sum(1, /*keepdim=*/true)) * scores;
}

at::Tensor shares_of_sum(const at::Tensor& scores, const Router& router) {
    return scores / sum_of(scores, router);
}

at::Tensor shares_of_sum_backward(const at::Tensor& dshares, const at::Tensor& scores, const Router& router) {
    const at::Tensor sum = sum_of(scores, router);
    return (dshares - (dshares * scores).sum(1, /*keepdim=*/true) / sum) / sum;
}

at::Tensor score_shares(const at::Tensor& logits, const Router& router) {
    const at::Tensor scores = expert_scores(logits, router);
    note_pass({logits, scores});
    return is_softmax(router) ? scores : shares_of_sum(scores, router);
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
    const at::Tensor scores = expert_scores(logits, router);
    const at::Tensor dscores = is_softmax(router) ? dshares : shares_of_sum_backward(dshares, scores, router);
    return dlogits.add_(expert_scores_backward(dscores, scores, router));
}

}  // namespace argosy::ops
