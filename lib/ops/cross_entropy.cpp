#include "ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "ops/types.h"

namespace argosy::ops {
namespace {

/// Where each target lies among this rank's columns: its column (0 where it does not) and whether it does.
struct LocalTargets {
    at::Tensor column, present;
};

LocalTargets local_targets(const at::Tensor& targets, int64_t begin, int64_t num_columns) {
    const at::Tensor column = targets - begin;
    const at::Tensor present = column.ge(0).logical_and(column.lt(num_columns)).logical_and(targets.ge(0));
    return {column * present, present};
}

}  // namespace

at::Tensor row_maxima(const at::Tensor& logits) {
    const auto type = accumulation_type(logits.scalar_type());
    if (logits.size(1) == 0) {
        return at::full({logits.size(0)}, -std::numeric_limits<double>::infinity(),
                        logits.options().dtype(type));
    }
    return logits.amax(1).to(type);
}

at::Tensor softmax_sums(const at::Tensor& logits, const at::Tensor& maxima, const at::Tensor& targets,
                        int64_t begin) {
    if (logits.size(1) == 0) return at::zeros({2, logits.size(0)}, maxima.options());
    const at::Tensor shifted = widened(logits) - maxima.unsqueeze(1);
    const auto [column, present] = local_targets(targets, begin, logits.size(1));
    const at::Tensor target_logit = shifted.gather(1, column.unsqueeze(1)).squeeze(1);
    return at::stack({shifted.exp().sum(1), at::where(present, target_logit, 0)});
}

at::Tensor cross_entropy_sum(const at::Tensor& sums, const at::Tensor& targets) {
    const at::Tensor losses = sums[0].log() - sums[1];
    return at::where(targets.ge(0), losses, 0).sum(at::kDouble);
}

at::Tensor cross_entropy_gradient(const at::Tensor& logits, const at::Tensor& maxima, const at::Tensor& sums,
                                  const at::Tensor& targets, int64_t begin, double scale) {
    if (logits.size(1) == 0) return logits;
    const at::Tensor scales = targets.ge(0).to(maxima.scalar_type()) * scale;
    at::Tensor gradient =
        (widened(logits) - maxima.unsqueeze(1)).exp_().mul_((scales / sums[0]).unsqueeze(1));
    const auto [column, present] = local_targets(targets, begin, logits.size(1));
    gradient.scatter_add_(1, column.unsqueeze(1), (-(scales * present)).unsqueeze(1));
    return gradient.to(logits.scalar_type());
}

}  // namespace argosy::ops
