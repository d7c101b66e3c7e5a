#include "setup/step_options.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/choices.h"
#include "model/units.h"
#include "setup/number_types.h"
#include "train/muon.h"

namespace argosy::setup {
namespace {

/// Throws UserError if a group has no parameter.
std::vector<train::ParameterGroup> groups_of(const config::Optimizer& optimizer,
                                             const model::ModelSpec& spec) {
    std::vector<train::ParameterGroup> groups;
    for (const auto& [part, lr_factor, weight_decay] : optimizer.groups) {
        const auto has_part = [&](const layout::ParamSpec& parameter) {
            return parameter.name.find(part) != std::string::npos;
        };
        const std::vector<layout::ParamSpec> parameters = model::model_parameters(spec);
        if (std::ranges::none_of(parameters, has_part)) {
            throw UserError(
                "optimizer.groups has the part {}, which is in no parameter's name; the first names are {}, "
                "{} and {}",
                part, parameters[0].name, parameters[1].name, parameters[2].name);
        }
        groups.push_back({part, lr_factor, weight_decay});
    }
    return groups;
}

std::optional<at::ScalarType> optional_type(const std::optional<config::Precision>& type) {
    if (!type) return std::nullopt;
    return scalar_type(*type);
}

/// The optimizers that take parameters before AdamW does.
std::vector<train::OptimizerChoice> optimizers(const config::JobConfig& config) {
    using enum train::MuonOptions::AdjustLr;
    const config::Optimizer& optimizer = config.optimizer;
    if (optimizer.name != config::OptimizerName::Muon) return {};
    return {train::muon(
        {.momentum = optimizer.muon_momentum,
         .nesterov = optimizer.muon_nesterov,
         .ns_steps = static_cast<int>(optimizer.muon_ns_steps),
         .adjust_lr = config::one_of(optimizer.muon_adjust_lr, {MatchRmsAdamW, Original, Spectral}),
         .by_head = optimizer.muon_split == config::MuonSplit::Head,
         .routers = optimizer.muon_routers,
         .ns_dtype = optional_type(optimizer.muon_ns_dtype),
         .state = optional_type(optimizer.state_dtype),
         .seed = static_cast<uint64_t>(config.debug.seed)})};
}

std::optional<double> qk_clip(const config::Optimizer& optimizer, const model::ModelSpec& spec) {
    if (optimizer.qk_clip && spec.qk_norm != model::QkNorm::None) {
        throw UserError(
            "optimizer.qk_clip = {:g} shrinks wq and wk, but the norms of {}'s queries and keys undo that, "
            "and bound the scores; remove the key",
            *optimizer.qk_clip, spec.name);
    }
    return optimizer.qk_clip;
}

train::BalanceOptions balance_options(const config::Moe& moe, const model::ModelSpec& spec) {
    if (!spec.experts && moe != config::Moe{}) {
        throw UserError(
            "[moe] is for experts, but the model {} has none; remove the keys of that section, or choose a "
            "model with experts, such as mixtral or qwen3_moe",
            spec.name);
    }
    if (moe.force_balance && moe.bias_update_rate != 0) {
        throw UserError(
            "moe.bias_update_rate = {:g}, but with moe.force_balance experts take turns, whatever their "
            "biases; remove one of the keys",
            moe.bias_update_rate);
    }
    return {.bias_update_rate = moe.bias_update_rate,
            .sequence_loss = moe.sequence_loss,
            .step_loss = moe.step_loss,
            .z_loss = moe.z_loss,
            .force_balance = moe.force_balance};
}

}  // namespace

train::StepOptions step_options(const config::JobConfig& config, const model::ModelSpec& spec) {
    const config::Optimizer& optimizer = config.optimizer;
    // Calls that may throw come first: GCC 12 destroys members twice if the initialization of a later one
    // throws.
    auto groups = groups_of(optimizer, spec);
    const auto clip = qk_clip(optimizer, spec);
    const auto balance = balance_options(config.moe, spec);
    auto makers = optimizers(config);
    return {.max_norm = config.training.max_norm,
            .weight_decay = optimizer.weight_decay,
            .decay_all_parameters = optimizer.decay_all_parameters,
            .groups = std::move(groups),
            .unit_grad_norms = config.metrics.layer_grad_norms,
            .qk_clip = clip,
            .balance = balance,
            .adamw = {optimizer.beta1, optimizer.beta2, optimizer.eps, optional_type(optimizer.state_dtype)},
            .optimizers = std::move(makers)};
}

}  // namespace argosy::setup
