#include "ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "ops/kernel_calls.h"
#include "ops/numerics.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

/// For each target: its column among this rank's columns (0 if the target is not among them), and whether it
/// is among them.
struct LocalTargets {
    at::Tensor column, present;
};

LocalTargets local_targets(const at::Tensor& targets, int64_t begin, int64_t num_columns) {
    const at::Tensor column = targets - begin;
    const at::Tensor present = column.ge(0) & column.lt(num_columns) & targets.ge(0);
    return {column * present, present};
}

SoftmaxSums plain_sums(const at::Tensor& logits, const at::Tensor& targets, int64_t begin) {
    const at::Tensor wide = widened(logits);
    const at::Tensor maxima = wide.amax(1);
    const auto [column, present] = local_targets(targets, begin, logits.size(1));
    const at::Tensor target_logits = wide.gather(1, column.unsqueeze(1)).squeeze(1);
    return {maxima, at::stack({(wide - maxima.unsqueeze(1)).exp_().sum(1),
                               target_logits.masked_fill(present.bitwise_not(), 0)})};
}

SoftmaxSums empty_sums(const at::Tensor& logits) {
    const auto options = logits.options().dtype(at::kFloat);
    return {at::empty({logits.size(0)}, options), at::empty({2, logits.size(0)}, options)};
}

SoftmaxSums kernel_sums(const at::Tensor& logits, const at::Tensor& targets, int64_t begin) {
    const int64_t num_rows = logits.size(0), num_columns = logits.size(1);
    SoftmaxSums out = empty_sums(logits);
    with_element_type(logits.scalar_type(), [&]<class T>(T) {
        const T* in = elements<T>(logits);
        const auto* target = elements<int64_t>(targets);
        auto *maxima = mutable_elements<float>(out.maxima), *sums = mutable_elements<float>(out.sums);
        const auto rows = [&](int64_t first, int64_t end) {
            return kernels::SoftmaxSums<T>{.num_rows = end - first,
                                           .num_columns = num_columns,
                                           .begin = begin,
                                           .logits = in + first * num_columns,
                                           .targets = target + first,
                                           .maxima = maxima + first,
                                           .exponentials = sums + first,
                                           .target_logits = sums + num_rows + first};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::softmax_sums, &kernels::GpuTypedKernels<T>::softmax_sums,
                       logits, num_rows, num_columns, rows);
    });
    return out;
}

void plain_gradient(at::Tensor& logits, const SoftmaxSums& all, const at::Tensor& targets, int64_t begin,
                    const at::Tensor& scale) {
    const at::Tensor scales = targets.ge(0).to(all.maxima.scalar_type()) * scale;
    at::Tensor gradient =
        (widened(logits) - all.maxima.unsqueeze(1)).exp_().mul_((scales / all.sums[0]).unsqueeze(1));
    const auto [column, present] = local_targets(targets, begin, logits.size(1));
    gradient.scatter_add_(1, column.unsqueeze(1), (-(scales * present)).unsqueeze(1));
    logits.copy_(gradient.masked_fill_(targets.lt(0).unsqueeze(1), 0));
}

void kernel_gradient(at::Tensor& logits, const SoftmaxSums& all, const at::Tensor& targets, int64_t begin,
                     const at::Tensor& scale) {
    const int64_t num_columns = logits.size(1);
    with_element_type(logits.scalar_type(), [&]<class T>(T) {
        T* inout = mutable_elements<T>(logits);
        const auto* target = elements<int64_t>(targets);
        const auto *maxima = elements<float>(all.maxima), *exponentials = elements<float>(all.sums),
                   *factor = elements<float>(scale);
        const auto rows = [&](int64_t first, int64_t end) {
            return kernels::CrossEntropyGradient<T>{.num_rows = end - first,
                                                    .num_columns = num_columns,
                                                    .begin = begin,
                                                    .targets = target + first,
                                                    .maxima = maxima + first,
                                                    .exponentials = exponentials + first,
                                                    .scale = factor,
                                                    .logits = inout + first * num_columns};
        };
        run_on_rows<T>(&kernels::TypedKernels<T>::cross_entropy_gradient,
                       &kernels::GpuTypedKernels<T>::cross_entropy_gradient, logits, logits.size(0),
                       num_columns, rows);
    });
}

SoftmaxSums gpu_sums_and_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& scale) {
    const int64_t num_rows = logits.size(0);
    SoftmaxSums out = empty_sums(logits);
    with_element_type(logits.scalar_type(), [&]<class T>(T) {
        auto* sums = mutable_elements<float>(out.sums);
        gpu_kernels<T>().cross_entropy({.num_rows = num_rows,
                                        .num_columns = logits.size(1),
                                        .targets = elements<int64_t>(targets),
                                        .scale = elements<float>(scale),
                                        .logits = mutable_elements<T>(logits),
                                        .maxima = mutable_elements<float>(out.maxima),
                                        .exponentials = sums,
                                        .target_logits = sums + num_rows},
                                       gpu::current_stream());
    });
    return out;
}

}  // namespace

SoftmaxSums softmax_sums(const at::Tensor& logits, const at::Tensor& targets, int64_t begin) {
    note_pass({logits});
    if (logits.size(1) == 0) {
        const auto options = logits.options().dtype(accumulation_type(logits.scalar_type()));
        const int64_t num_rows = logits.size(0);
        return {at::full({num_rows}, -std::numeric_limits<double>::infinity(), options),
                at::zeros({2, num_rows}, options)};
    }
    if (!has_kernels(logits)) return plain_sums(logits, targets, begin);
    return kernel_sums(logits.contiguous(), targets.contiguous(), begin);
}

void raise_maxima(SoftmaxSums& own, const at::Tensor& maxima) {
    own.sums[0].mul_((own.maxima - maxima).exp_());
    own.maxima = maxima;
}

at::Tensor cross_entropy(const SoftmaxSums& all, const at::Tensor& targets) {
    const at::Tensor losses = all.sums[0].log() - (all.sums[1] - all.maxima);
    return losses.masked_fill(targets.lt(0), 0);
}

at::Tensor target_is_largest(const SoftmaxSums& all, const at::Tensor& targets) {
    return all.sums[1].ge(all.maxima) & targets.ge(0);
}

at::Tensor cross_entropy_sum(const SoftmaxSums& all, const at::Tensor& targets) {
    return cross_entropy(all, targets).to(at::kDouble).sum();
}

void turn_into_cross_entropy_gradient(at::Tensor& logits, const SoftmaxSums& all, const at::Tensor& targets,
                                      int64_t begin, const at::Tensor& scale) {
    note_pass({logits, logits});
    if (logits.size(1) == 0) return;
    if (!has_kernels(logits) || !logits.is_contiguous())
        return plain_gradient(logits, all, targets, begin, scale);
    kernel_gradient(logits, all, targets.contiguous(), begin, scale);
}

SoftmaxSums turn_into_cross_entropy_gradient(at::Tensor& logits, const at::Tensor& targets,
                                             const at::Tensor& scale) {
    if (has_kernels(logits) && fused() && gpu::holds(logits)) {
        return gpu_sums_and_gradient(logits, targets.contiguous(), scale);
    }
    SoftmaxSums sums = softmax_sums(logits, targets, /*begin=*/0);
    turn_into_cross_entropy_gradient(logits, sums, targets, /*begin=*/0, scale);
    return sums;
}

}  // namespace argosy::ops
