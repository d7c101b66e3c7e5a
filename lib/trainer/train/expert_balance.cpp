#include "train/expert_balance.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "model/units.h"
#include "ops/numerics.h"

namespace argosy::train {
namespace {

using layout::Axis;
using model::Balancing;

constexpr layout::AxisSet kPartsOfSequences = {Axis::Context, Axis::Tensor};

/// Not the group of the layers' other collectives, behind which a count would wait.
comm::Communicator& sequence_group(comm::Mesh& mesh) {
    return mesh.group(kPartsOfSequences, /*parts=*/1, /*number=*/2);
}

bool communicates(const BalanceOptions& options, const comm::Mesh& mesh) {
    return options.sequence_loss != 0 && mesh.degree(kPartsOfSequences) > 1;
}

/// The numbers in their order. In the host's memory no tensor is made, of which a dry step would not know.
std::vector<double> list_of(const at::Tensor& numbers) {
    const at::Tensor here = numbers.cpu();
    const auto list = [&](const auto* data) { return std::vector<double>(data, data + here.numel()); };
    if (here.scalar_type() == at::kDouble) return list(here.const_data_ptr<double>());
    return list(here.const_data_ptr<float>());
}

}  // namespace

void ExpertBalance::open_groups(const BalanceOptions& options, comm::Mesh& mesh) {
    if (communicates(options, mesh)) sequence_group(mesh).open_collectives(comm::Collectives::Reductions);
}

ExpertBalance::ExpertBalance(const BalanceOptions& options, parallel::ParallelModel& model, comm::Mesh& mesh)
    : options_(options),
      router_(model.spec().experts.value().router),
      model_(model),
      data_degree_(mesh.degree(layout::kDataAxes)),
      context_degree_(mesh.degree(Axis::Context)) {
    const model::ModelSpec& spec = model.spec();
    for (const auto& [layer, bias] : model::router_biases(spec)) layers_.push_back(layer);
    const at::TensorOptions device(model.device());
    balancing_.forced = options.force_balance;
    balancing_.sums =
        at::zeros({spec.num_layers, router_.num_experts + Balancing::kNumSums}, device.dtype(at::kDouble));
    if (options.step_loss != 0) {
        const auto type = ops::accumulation_type(model.precision().compute);
        balancing_.loads = at::ones({spec.num_layers, router_.num_experts}, device.dtype(type));
    }
    if (!communicates(options, mesh)) return;
    balancing_.sum_over_sequences = [&group = sequence_group(mesh)](at::Tensor& counts) {
        group.run({.kind = comm::OpKind::AllReduce,
                   .out = counts,
                   .in = counts,
                   .purpose = {"the load of experts"}});
    };
}

void ExpertBalance::start_step(std::span<model::Batch> microbatches) {
    balancing_.sums.zero_();
    int64_t num_sequences = 0;
    for (model::Batch& batch : microbatches) {
        batch.balancing = &balancing_;
        balancing_.seq_len = batch.seq_len * context_degree_;
        num_sequences += batch.num_sequences;
    }
    num_tokens_ = num_sequences * data_degree_ * balancing_.seq_len;
    const auto scale = [&](double coefficient) { return coefficient / static_cast<double>(num_tokens_); };
    balancing_.sequence_scale = scale(options_.sequence_loss);
    balancing_.step_scale = scale(options_.step_loss);
    balancing_.z_scale = scale(options_.z_loss);
}

void ExpertBalance::apply(const at::Tensor& sums) {
    const at::Tensor of_experts = counts(sums);
    if (options_.bias_update_rate != 0) {
        const at::Tensor below = of_experts.mean(1, /*keepdim=*/true) - of_experts;
        model_.router_biases().add_(below.sign().to(model_.router_biases().options()),
                                    options_.bias_update_rate);
    }
    if (!loads().defined()) return;
    const double even =
        static_cast<double>(num_tokens_ * router_.top_k) / static_cast<double>(router_.num_experts);
    for (const int64_t layer : layers_) balancing_.loads[layer].copy_(of_experts[layer] / even);
}

model::ExpertFigures ExpertBalance::figures(const at::Tensor& sums) const {
    model::ExpertFigures figures{.layers = layers_, .forced_balance = options_.force_balance};
    const std::vector<double> biases = list_of(model_.router_biases()), all = list_of(sums);
    const auto is_bias = [](double bias) { return bias != 0; };
    const bool has_biases = options_.bias_update_rate != 0 || std::ranges::any_of(biases, is_bias);
    const int64_t num_experts = router_.num_experts, num_columns = num_experts + Balancing::kNumSums;
    for (const int64_t layer : layers_) {
        const auto row = all.begin() + layer * num_columns;
        figures.counts.emplace_back(row, row + num_experts);
        figures.entropy.push_back(row[num_experts + Balancing::Entropy] / static_cast<double>(num_tokens_));
        if (!has_biases) continue;
        const auto first = biases.begin() + layer * num_experts;
        const auto [min, max] = std::minmax_element(first, first + num_experts);
        figures.bias_min.push_back(*min);
        figures.bias_max.push_back(*max);
    }
    const auto loss = [&](double scale, Balancing::Sum column) -> std::optional<double> {
        if (scale == 0) return {};
        double sum = 0;
        for (const int64_t layer : layers_) sum += all[layer * num_columns + num_experts + column];
        return scale * sum;
    };
    figures.sequence_loss = loss(balancing_.sequence_scale, Balancing::SequenceLoss);
    figures.step_loss = loss(balancing_.step_scale, Balancing::StepLoss);
    figures.z_loss = loss(balancing_.z_scale, Balancing::ZLoss);
    return figures;
}

}  // namespace argosy::train
