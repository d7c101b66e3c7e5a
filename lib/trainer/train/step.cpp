#include "train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "comm/values.h"
#include "train/rates.h"

namespace argosy::train {
namespace {

OptimizedParameter optimized(parallel::ShardedParameter& parameter, const StepOptions& options) {
    const layout::ParamSpec& spec = parameter.spec();
    const ParameterRates rates = rates_of(spec, options);
    return {.name = spec.name,
            .rows = layout::rows_of(spec.shape, parameter.slab()),
            .weights = parameter.master(),
            .compute = parameter.scale().defined() ? parameter.master() : parameter.compute(),
            .gradient = parameter.gradient().sum,
            .weight_decay = rates.weight_decay,
            .lr_factor = rates.lr_factor,
            .spec = &spec,
            .owned = parameter.owned()};
}

/// Checks what saves rely on.
void check(const State& state, parallel::ShardedParameter& parameter, const std::vector<State>& others) {
    const auto is_same = [&](const State& other) {
        return other.parameter == state.parameter && other.name == state.name;
    };
    ARGOSY_CHECK(state.tensor.sizes() == parameter.master().sizes() && state.tensor.is_contiguous() &&
                     std::ranges::none_of(others, is_same),
                 "the state {} of {} does not follow its parameter", state.name, parameter.spec().name);
}

/// Reads [loss, squared norm, squared norms of units ..., sums of experts ...] in the host's memory; the last
/// have the shape of `expert_sums`, if that is defined.
StepTotals totals_of(const at::Tensor& values, const at::Tensor& expert_sums) {
    const auto* value = values.const_data_ptr<double>();
    const int64_t num_norms = values.numel() - 2 - (expert_sums.defined() ? expert_sums.numel() : 0);
    StepTotals totals{value[0], value[1], {value + 2, value + 2 + num_norms}};
    if (expert_sums.defined())
        totals.expert_sums = values.narrow(0, 2 + num_norms, expert_sums.numel()).view(expert_sums.sizes());
    return totals;
}

/// The gradient norm of each unit; empty if the totals have no norms of units.
std::vector<std::pair<std::string, double>> unit_norms(const StepTotals& totals,
                                                       const model::ModelSpec& spec) {
    std::vector<std::pair<std::string, double>> norms;
    if (totals.unit_squared_norms.empty()) return norms;
    auto square = totals.unit_squared_norms.begin();
    for (const std::string& unit : model::unit_names(spec)) norms.emplace_back(unit, std::sqrt(*square++));
    return norms;
}

std::optional<Scores> scores_of(const StepTotals& totals, const std::optional<QkClip>& clip) {
    if (!clip) return std::nullopt;
    const at::Tensor& largest = totals.largest_scores;
    return Scores{largest.max().item<double>(), largest.gt(clip->threshold()).sum().item<int64_t>()};
}

/// The number itself, and any NaN as the one that prints as "nan": a NaN's sign means nothing.
double without_nan_sign(double number) {
    return std::isnan(number) ? std::numeric_limits<double>::quiet_NaN() : number;
}

}  // namespace

ParameterRates rates_of(const layout::ParamSpec& parameter, const StepOptions& options) {
    const bool decays = options.decay_all_parameters || parameter.kind != layout::ParameterKind::Vector;
    const double weight_decay = decays ? options.weight_decay : 0;
    const auto group = std::ranges::find_if(options.groups, [&](const ParameterGroup& each) {
        return parameter.name.find(each.part) != std::string::npos;
    });
    if (group == options.groups.end()) return {1, weight_decay};
    return {group->lr_factor, group->weight_decay.value_or(weight_decay)};
}

bool StepTotals::finite() const {
    return std::isfinite(loss) && std::isfinite(squared_norm) &&
           std::ranges::all_of(unit_squared_norms, [](double square) { return std::isfinite(square); });
}

Step::Step(parallel::ParallelModel& model, comm::Mesh& mesh, parallel::Executor executor,
           const StepOptions& options)
    : model_(model), mesh_(mesh), executor_(std::move(executor)), options_(options) {
    make_optimizers();
    if (options.qk_clip) qk_clip_.emplace(*options.qk_clip, options.adamw.seed, model);
    if (model.spec().experts) balance_.emplace(options.balance, model, mesh);
}

void Step::make_optimizers() {
    // 1. give each parameter to the first choice that takes it; AdamW, the last one, takes any
    std::vector<OptimizerChoice> choices = options_.optimizers;
    choices.push_back({[](const layout::ParamSpec&) { return true; },
                       [&](std::vector<OptimizedParameter> parameters, comm::Mesh&) {
                           return std::make_unique<AdamW>(options_.adamw, std::move(parameters));
                       }});
    std::vector<std::vector<OptimizedParameter>> taken(choices.size());
    std::vector<std::vector<size_t>> numbers(choices.size());  // of those parameters, in the model
    for (size_t i = 0; i < model_.parameters().size(); ++i) {
        OptimizedParameter parameter = optimized(*model_.parameters()[i], options_);
        const auto takes = [&](const OptimizerChoice& choice) { return choice.takes(*parameter.spec); };
        const auto choice = std::ranges::find_if(choices, takes) - choices.begin();
        taken[choice].push_back(std::move(parameter));
        numbers[choice].push_back(i);
    }
    // 2. make the optimizers; one that communicates is made on ranks without parameters of its own too
    for (size_t i = 0; i < choices.size(); ++i) {
        optimizers_.push_back(choices[i].make(std::move(taken[i]), mesh_));
        for (State& state : optimizers_.back()->states()) {
            state.parameter = numbers[i].at(state.parameter);
            check(state, *model_.parameters()[state.parameter], states_);
            states_.push_back(std::move(state));
        }
    }
    std::ranges::stable_sort(states_, {}, &State::parameter);
}

StepTotals Step::forward_backward(const StepBatch& batch, const std::function<void()>& meanwhile) {
    // The weight of one token's loss in the job's mean: the same for every token on every rank. If no token
    // counts, loss and gradients are 0 with any weight that is finite.
    const double weight = 1 / static_cast<double>(std::max<int64_t>(batch.job_counted_tokens, 1));
    parallel::reset_gradients(model_);
    parallel::reset_scores(model_);
    std::vector<model::Batch> microbatches = batch.microbatches;
    if (balance_) balance_->start_step(microbatches);
    at::Tensor loss = executor_.run(microbatches, weight, num_updates_) * weight;
    // The ranks of a tensor group computed the same loss, so only one of them adds it to the sum.
    if (mesh_.coordinate(layout::Axis::Tensor) != 0) loss.zero_();
    const at::Tensor squares = parallel::owned_squared_norms(model_);
    at::Tensor totals = at::stack({loss, squares.sum()});
    if (options_.unit_grad_norms) totals = at::cat({totals, squares});
    const at::Tensor expert_sums = balance_ ? balance_->sums() : at::Tensor();
    if (balance_) totals = at::cat({totals, expert_sums.flatten()});
    if (meanwhile) meanwhile();
    StepTotals result = totals_of(
        comm::reduce_on_host(mesh_.world(), totals, comm::Reduction::Sum, "loss and norm"), expert_sums);
    if (qk_clip_) {
        const at::Tensor largest = comm::reduce_on_host(mesh_.world(), model_.largest_scores(),
                                                        comm::Reduction::Max, "attention scores");
        result.largest_scores = largest.clone();  // the next step resets the model's
    }
    return result;
}

/// The factor by which the optimizer multiplies the gradients, to clip them to max_norm.
double Step::gradient_factor(double norm) const {
    constexpr double kGuard = 1e-6;  // against division by zero
    return std::min(options_.max_norm / (norm + kGuard), 1.0);
}

StepResult Step::update(const StepTotals& totals, double lr, const UpdateLimits& limits) {
    const double loss = without_nan_sign(totals.loss),
                 norm = without_nan_sign(std::sqrt(totals.squared_norm));
    const bool within = totals.finite() && loss <= limits.loss && norm <= limits.grad_norm;
    if (within) {
        const Update update{++num_updates_, lr, gradient_factor(norm)};
        for (const auto& optimizer : optimizers_) optimizer->update(update);
        if (qk_clip_) qk_clip_->apply(totals.largest_scores, num_updates_);
        if (balance_) balance_->apply(totals.expert_sums);
        model_.refresh_float8();
    }
    mesh_.world().wait_for_gpu();  // otherwise the update's time would count for the next step
    StepResult result{loss, norm, /*skipped=*/!within, unit_norms(totals, model_.spec()),
                      scores_of(totals, qk_clip_)};
    if (balance_ && !model_.device().is_meta()) result.experts = balance_->figures(totals.expert_sums);
    return result;
}

}  // namespace argosy::train
