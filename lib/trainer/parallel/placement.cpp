#include "parallel/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "model/units.h"

namespace argosy::parallel {
namespace {

using layout::Axis;
using layout::MeshShape;
using model::ModelSpec;
using model::Parameter;

void check_heads(const ModelSpec& spec, int degree) {
    if (spec.num_heads % degree != 0) {
        throw UserError(
            "parallelism.tensor_parallel_degree = {} does not divide the model's {} attention heads; use a "
            "divisor of {}",
            degree, spec.num_heads, spec.num_heads);
    }
    if (spec.num_kv_heads % degree != 0 && degree % spec.num_kv_heads != 0) {
        throw UserError(
            "parallelism.tensor_parallel_degree = {} neither divides the model's {} key/value heads nor is a "
            "multiple of them",
            degree, spec.num_kv_heads);
    }
}

void check_experts(const ModelSpec& spec, const MeshShape& mesh) {
    const int degree = mesh.degree(mesh.expert_axes);
    const int64_t count = spec.experts ? spec.experts->router.num_experts : 0;
    ARGOSY_CHECK(degree == 1 || (count > 0 && count % degree == 0), "{} experts in {} parts", count, degree);
}

void check_stages(const ModelSpec& spec, const std::vector<int>& stage_layers) {
    const int64_t total = std::accumulate(stage_layers.begin(), stage_layers.end(), int64_t{0});
    if (total != spec.num_layers) {
        throw UserError(
            "parallelism.pipeline_parallel_layers_per_stage adds up to {} layers, but the model has {}",
            total, spec.num_layers);
    }
    for (size_t stage = 1; stage + 1 < stage_layers.size(); ++stage) {
        if (stage_layers[stage] > 0) continue;
        throw UserError(
            "parallelism.pipeline_parallel_layers_per_stage leaves stage {} of {} without layers; only the "
            "first stage (embedding) and the last stage (head) may have none",
            stage, stage_layers.size());
    }
}

/// Splits heads, hidden columns and the vocabulary over the tensor axis.
void split_for_tensor_parallel(Parameter& parameter, int degree) {
    if (degree == 1 || parameter.reads_own_rows) return;
    if (!parameter.tensor_dim) {
        parameter.spec.gradient = {Axis::Tensor};
        return;
    }
    const auto parts = static_cast<int>(std::min<int64_t>(degree, parameter.max_parts));
    if (parts < degree) parameter.spec.gradient = {Axis::Tensor, parts};
    parameter.spec.cuts.push_back({Axis::Tensor, *parameter.tensor_dim, parts});
}

void shard(Parameter& parameter, const MeshShape& mesh) {
    const int expert_degree = mesh.degree(mesh.expert_axes);
    layout::AxisSet shards = kDenseShards;
    if (parameter.reads_own_rows) {
        shards = kExpertShards.without(mesh.expert_axes);
        if (expert_degree > 1) parameter.spec.cuts.push_back({mesh.expert_axes, 0, expert_degree});
    }
    parameter.spec.shards = shards;
    const int degree = mesh.degree(shards);
    if (degree > 1) parameter.spec.cuts.push_back({shards, 0, degree});
}

bool is_sharded(const layout::ParamSpec& spec) {
    return std::ranges::find(spec.cuts, spec.shards, &layout::Cut::axes) != spec.cuts.end();
}

void replicate(Parameter& parameter, const MeshShape& mesh) {
    if (mesh.degree(Axis::Replicate) > 1) parameter.spec.gradient.axes.add(Axis::Replicate);
}

std::vector<int> stages_of_units(const std::vector<int>& stage_layers) {
    std::vector<int> stages = {0};
    for (size_t stage = 0; stage < stage_layers.size(); ++stage) {
        stages.insert(stages.end(), stage_layers[stage], static_cast<int>(stage));
    }
    stages.push_back(static_cast<int>(stage_layers.size()) - 1);
    return stages;
}

}  // namespace

ModelPlacement place_parameters(const ModelSpec& spec, const MeshShape& mesh,
                                const std::vector<int>& stage_layers, StageOrder order) {
    check_heads(spec, mesh.degree(Axis::Tensor));
    check_experts(spec, mesh);
    check_stages(spec, stage_layers);
    const auto num_stages = static_cast<int>(stage_layers.size());
    ModelPlacement placement{model::unit_parameters(spec), stages_of_units(stage_layers),
                             StageMap(num_stages, mesh.degree(Axis::Pipeline), order)};
    // A tied table is one parameter if one pipeline rank runs the first and the last stage.
    const int last_rank = placement.stages.rank_of(num_stages - 1);
    const bool two_tables = spec.tied_embeddings && last_rank != 0;
    for (size_t unit = 0; unit < placement.units.size(); ++unit) {
        for (Parameter& parameter : placement.units[unit]) {
            split_for_tensor_parallel(parameter, mesh.degree(Axis::Tensor));
            shard(parameter, mesh);
            replicate(parameter, mesh);
            parameter.spec.pipeline_ranks = {placement.rank_of(unit)};
            if (two_tables && parameter.is_table) parameter.spec.pipeline_ranks = {0, last_rank};
        }
    }
    return placement;
}

std::vector<layout::AxisSet> shards_of_sets(const std::vector<Parameter>& unit) {
    std::map<int, layout::AxisSet> shards;
    for (const Parameter& parameter : unit) {
        const layout::AxisSet known = shards.emplace(parameter.set, parameter.spec.shards).first->second;
        ARGOSY_CHECK(known == parameter.spec.shards && parameter.set == unit[parameter.place.first].set &&
                         (parameter.set == 0 || !parameter.is_table),
                     "{} does not fit its set: {}", parameter.spec.name, parameter.set);
    }
    ARGOSY_CHECK(shards.empty() || std::cmp_equal(shards.rbegin()->first + 1, shards.size()),
                 "the sets of {} are not numbered from 0", unit.front().spec.name);
    const auto axes = std::views::values(shards);
    return {axes.begin(), axes.end()};
}

std::set<int> summed_parameters(const ModelPlacement& placement, size_t unit) {
    std::set<int> summed;
    for (int number = 0; const Parameter& parameter : placement.units[unit]) {
        const bool shared = unit > 0 && parameter.is_table && parameter.spec.pipeline_ranks.size() == 1;
        if (!parameter.spec.gradient.axes.empty() && !shared) summed.insert(number);
        ++number;
    }
    return summed;
}

std::vector<StageUnits> stage_units(const ModelPlacement& placement) {
    std::vector<StageUnits> stages(placement.unit_stage.back() + 1);
    for (size_t unit = 0; unit < placement.units.size(); ++unit) {
        const int stage = placement.unit_stage[unit];
        if (unit + 1 < placement.units.size()) ++stages[stage].num_layers;
        const std::vector<Parameter>& parameters = placement.units[unit];
        std::vector<UnitSet>& sets = stages[stage].sets.emplace_back(shards_of_sets(parameters).size());
        for (const Parameter& each : parameters) sets[each.set].sharded |= is_sharded(each.spec);
        for (const int number : summed_parameters(placement, unit))
            sets[parameters[number].set].summed = true;
    }
    stages.front().has_embedding = true;
    stages.back().has_head = true;
    if (placement.units.front().front().spec.pipeline_ranks.size() > 1) {
        stages.front().tied_unit = 0;
        stages.back().tied_unit = stages.back().num_layers;
    }
    return stages;
}

std::vector<int> split_layers(int64_t num_layers, int num_stages, int first_less, int last_less) {
    if (num_stages == 1) return {static_cast<int>(num_layers)};
    const int64_t total = num_layers + first_less + last_less;
    std::vector<int> layers;
    for (int stage = 0; stage < num_stages; ++stage) {
        int64_t count = total / num_stages + (stage < total % num_stages ? 1 : 0);
        if (stage == 0) count -= first_less;
        if (stage == num_stages - 1) count -= last_less;
        layers.push_back(static_cast<int>(count));
    }
    if (*std::min_element(layers.begin(), layers.end()) < 0 || num_layers < num_stages) {
        throw UserError(
            "{} layers cannot be split over {} pipeline stages with {} fewer on the first and {} fewer on "
            "the last; lower parallelism.pipeline_parallel_degree, or set "
            "parallelism.pipeline_parallel_layers_per_stage",
            num_layers, num_stages, first_less, last_less);
    }
    return layers;
}

}  // namespace argosy::parallel
