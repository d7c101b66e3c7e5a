#include "train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <utility>

#include "base/fault.h"
#include "parallel/gradients.h"

namespace argosy::train {
namespace {

std::vector<optim::AdamW::Item> optimizer_items(parallel::ParallelModel& model, bool decay_all) {
    std::vector<optim::AdamW::Item> items;
    for (const auto& parameter : model.parameters()) {
        items.push_back(
            {parameter->master(), parameter->gradient().sum, decay_all || parameter->spec().is_matrix});
    }
    return items;
}

/// What a token's loss weighs in the job's mean: the same for every token, wherever it was computed.
double token_weight(const StepBatch& batch, int data_degree) {
    if (fault_planted(Fault::WeightTokensPerRank)) {
        return 1 / (static_cast<double>(batch.counted_tokens) * data_degree);
    }
    return 1 / static_cast<double>(batch.job_counted_tokens);
}

}  // namespace

Step::Step(parallel::ParallelModel& model, mesh::Mesh& mesh, parallel::Executor executor,
           const StepOptions& options)
    : model_(model),
      mesh_(mesh),
      executor_(std::move(executor)),
      options_(options),
      optimizer_(options.adamw, optimizer_items(model, options.decay_all_parameters)) {}

at::Tensor Step::forward_backward(const StepBatch& batch) {
    const double weight = token_weight(batch, mesh_.degree(mesh::kDataAxes));
    parallel::start_gradients(model_);
    at::Tensor loss = executor_.run(batch.microbatches, weight) * weight;
    // The ranks of a tensor group computed the same loss.
    if (mesh_.coordinate(mesh::Axis::Tensor) != 0) loss.zero_();
    parallel::sum_replicas(model_, mesh_);
    at::Tensor totals = at::stack({loss, parallel::owned_squared_norm(model_)});
    mesh_.world().run({.kind = comm::OpKind::AllReduce, .out = totals, .in = totals});
    return totals;
}

void Step::clip(const at::Tensor& norm) {
    if (std::isinf(options_.max_norm)) return;
    constexpr double kGuard = 1e-6;  // against a norm of zero
    const at::Tensor factor = (options_.max_norm / (norm + kGuard)).clamp_max(1);
    for (const auto& parameter : model_.parameters()) parameter->gradient().sum.mul_(factor);
}

StepResult Step::update(const at::Tensor& loss_and_squared_norm, double lr) {
    const at::Tensor norm = loss_and_squared_norm[1].sqrt();
    const at::Tensor skip = loss_and_squared_norm.isfinite().all().logical_not().to(at::kFloat);
    clip(norm);
    optimizer_.step(lr, skip);
    for (const auto& parameter : model_.parameters()) parameter->refresh_compute();
    return {loss_and_squared_norm[0].item<double>(), norm.item<double>(), skip.item<float>() != 0};
}

}  // namespace argosy::train
