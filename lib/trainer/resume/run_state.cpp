#include "resume/run_state.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json_field.h"
#include "base/strict_json.h"
#include "gpu/element_type.h"
#include "model/units.h"
#include "resume/save_plan.h"

namespace argosy::resume {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const train::UpdateGuard::State& guard) {
    return {{"skipped", guard.num_skipped},
            {"nonfinite_in_a_row", guard.nonfinite_in_a_row},
            {"spikes_in_a_row", guard.spikes_in_a_row},
            {"losses", guard.losses},
            {"grad_norms", guard.grad_norms}};
}

// This is larger than any run's counts, and small enough that arithmetic with counts does not overflow 64
// bits.
constexpr int64_t kMaxCount = int64_t{1} << 53;

int64_t count_in(const JsonField& object, const char* key) {
    return object[key].whole<int64_t>(0, kMaxCount);
}

std::vector<double> numbers_in(const JsonField& list) {
    std::vector<double> numbers;
    for (const JsonField& number : list.list()) numbers.push_back(number.number());
    return numbers;
}

train::UpdateGuard::State guard_in(const JsonField& object) {
    return {.losses = numbers_in(object["losses"]),
            .grad_norms = numbers_in(object["grad_norms"]),
            .nonfinite_in_a_row = count_in(object, "nonfinite_in_a_row"),
            .spikes_in_a_row = count_in(object, "spikes_in_a_row"),
            .num_skipped = count_in(object, "skipped")};
}

/// samples * seq_len must not exceed kMaxCount, because samples_of_length() (loaded_parts.cpp) computes it.
void check_place(int64_t samples, int64_t seq_len) {
    if (seq_len < 1) throw UserError("seq_len is {}, not 1 or more", seq_len);
    if (samples > kMaxCount / seq_len) {
        throw UserError("samples and seq_len are {} and {}, which is more than {} tokens", samples, seq_len,
                        kMaxCount);
    }
}

/// Steps that older versions saved do not name their data, nor the version of the schedule, and have a loss
/// scale, which is null unless the run computed in float16.
Scalars scalars_in(const JsonField& object) {
    const auto knows = [&](const char* key) { return !object.contains(key) || !object[key].is_null(); };
    const auto count_if_known = [&](const char* key) { return knows(key) ? count_in(object, key) : 0; };
    Scalars scalars{
        .position = {count_in(object, "step"), count_if_known("samples"), count_if_known("tokens")},
        .knows_samples = knows("samples"),
        .knows_tokens = knows("tokens"),
        .seq_len = count_in(object, "seq_len"),
        .seed = object["seed"].whole<uint64_t>(0, std::numeric_limits<uint64_t>::max()),
        .data = object["data"].is_null() ? "" : object["data"].string(),
        .num_updates = count_in(object, "updates"),
        .lr_schedule = object["lr_schedule"].whole<int64_t>(0, kMaxCount, /*if_null=*/1),
        .has_loss_scale = !object["loss_scale"].is_null(),
        .guard = guard_in(object["guard"])};
    check_place(scalars.position.samples, scalars.seq_len);
    return scalars;
}

/// The rows of `tensor`, of the parameter's shape on this rank, that belong to the parameter.
HeldSlab held_slab(const std::string& name, const parallel::ShardedParameter& parameter,
                   const at::Tensor& tensor) {
    const checkpoint::TensorInfo info{name, gpu::element_type(tensor.scalar_type()).value(),
                                      parameter.spec().shape};
    return {{info, parameter.slab()}, parameter.own_rows(tensor)};
}

/// A slab of each bias of experts, of a tensor with a row for each layer of the model. All ranks have all of
/// them.
std::vector<HeldSlab> slabs_of_experts(const std::string& prefix, const model::ModelSpec& spec,
                                       const at::Tensor& of_layers, double if_missing) {
    std::vector<HeldSlab> slabs;
    for (const auto& [layer, bias] : model::router_biases(spec)) {
        const checkpoint::TensorInfo info{prefix + bias.name,
                                          gpu::element_type(of_layers.scalar_type()).value(), bias.shape};
        slabs.push_back({{info, layout::whole(bias.shape)}, of_layers[layer], if_missing});
    }
    return slabs;
}

/// Adds cuts of tensors that every rank has whole: one rank writes each.
void add_whole(std::span<const HeldSlab> slabs, const layout::MeshShape& mesh,
               std::vector<checkpoint::CutTensor>& cuts) {
    layout::ParamSpec spec;
    spec.pipeline_ranks.clear();
    for (int rank = 0; rank < mesh.degree(layout::Axis::Pipeline); ++rank)
        spec.pipeline_ranks.push_back(rank);
    for (const HeldSlab& slab : slabs) {
        spec.name = slab.tensor.name;
        spec.shape = slab.tensor.shape;
        cuts.push_back(cut_tensor(slab.tensor, spec, mesh));
    }
}

}  // namespace

std::string weight_name(const std::string& parameter) { return "model/" + parameter; }

HeldWeights::HeldWeights(parallel::ParallelModel& model) : model_(model) {
    for (const auto& parameter : model.parameters()) {
        slabs_.push_back(held_slab(weight_name(parameter->spec().name), *parameter, parameter->master()));
    }
    const auto biases =
        slabs_of_experts(weight_name(""), model.spec(), model.router_biases(), /*if_missing=*/0);
    slabs_.insert(slabs_.end(), biases.begin(), biases.end());
}

bool HeldWeights::has_router_biases() const {
    const at::Tensor& biases = model_.router_biases();
    return biases.defined() && biases.ne(0).any().item<bool>();
}

void HeldWeights::changed() {
    for (const auto& parameter : model_.parameters()) parameter->refresh_compute();
    model_.refresh_float8();
}

RunState::RunState(train::Trainer& trainer, const comm::Mesh& mesh, train::UpdateGuard& guard,
                   int64_t seq_len, std::string data)
    : trainer_(trainer),
      mesh_(mesh),
      guard_(guard),
      seq_len_(seq_len),
      data_(std::move(data)),
      weights_(trainer.model()) {
    const auto& parameters = trainer.model().parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
        cut_weights_.push_back(cut_tensor(weights_.slabs()[i].tensor, parameters[i]->spec(), mesh.shape()));
    add_whole(std::span(weights_.slabs()).subspan(parameters.size()), mesh.shape(), cut_weights_);
    for (const auto& [name, number, tensor] : trainer.step().states()) {
        const parallel::ShardedParameter& parameter = *parameters[number];
        states_.push_back(
            held_slab(fmt::format("optimizer/{}/{}", name, parameter.spec().name), parameter, tensor));
        cut_states_.push_back(cut_tensor(states_.back().tensor, parameter.spec(), mesh.shape()));
    }
    if (const at::Tensor loads = trainer.step().expert_loads(); loads.defined()) {
        const auto slabs = slabs_of_experts("optimizer/load/", spec(), loads, /*if_missing=*/1);
        add_whole(slabs, mesh.shape(), cut_states_);
        states_.insert(states_.end(), slabs.begin(), slabs.end());
    }
}

int RunState::writer(const checkpoint::SavePlan& plan) const {
    return writer_of(plan, mesh_.shape(), mesh_.coordinates());
}

Scalars RunState::scalars(const train::Position& position) const {
    return {.position = position,
            .seq_len = seq_len_,
            .seed = trainer_.seed(),
            .data = data_,
            .num_updates = trainer_.step().num_updates(),
            .guard = guard_.state()};
}

void RunState::restore_optimizer(const Scalars& scalars) {
    trainer_.step().set_num_updates(scalars.num_updates);
}

std::string to_json(const Scalars& scalars) {
    const Json object = {{"step", scalars.position.step},
                         {"samples", scalars.knows_samples ? Json(scalars.position.samples) : Json()},
                         {"tokens", scalars.knows_tokens ? Json(scalars.position.tokens) : Json()},
                         {"seq_len", scalars.seq_len},
                         {"seed", scalars.seed},
                         {"data", scalars.data},
                         {"updates", scalars.num_updates},
                         {"lr_schedule", scalars.lr_schedule},
                         {"guard", json_of(scalars.guard)}};
    return object.dump();
}

Scalars parse_scalars(const std::string& text, const std::string& place) {
    try {
        const std::string name = "its text";
        const Json json = parse_json(text, name);
        return scalars_in(JsonField(json, name));
    } catch (const std::exception& error) {
        throw UserError(
            "{}: the run's state cannot be read: {}. Its format is that of lib/trainer/resume/FORMAT.md",
            place, error.what());
    }
}

}  // namespace argosy::resume
