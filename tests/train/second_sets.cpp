#include "train/second_sets.h"

#include "parallel/placement.h"

#define PLACE                                                                                              \
    "_ZN6argosy8parallel16place_parametersERKNS_5model9ModelSpecERKNS_6layout9MeshShapeERKSt6vectorIiSaIi" \
    "EENS0_10StageOrderE"

namespace argosy::testing {

using layout::Axis;
using layout::AxisSet;
using parallel::ModelPlacement;
using parallel::StageOrder;
ModelPlacement real_place(const model::ModelSpec& spec, const layout::MeshShape& mesh,
                          const std::vector<int>& stage_layers, StageOrder order) __asm__("__real_" PLACE);
ModelPlacement place(const model::ModelSpec& spec, const layout::MeshShape& mesh,
                     const std::vector<int>& stage_layers, StageOrder order) __asm__("__wrap_" PLACE);

namespace {

/// The shard axes of the second set; null while there is none.
const AxisSet* second_shards = nullptr;

/// Makes the parameter one of the second set: its shards are those of `shards`, and the ranks of the other
/// axes sum its gradients.
void move_to_second_set(model::Parameter& parameter, const layout::MeshShape& mesh, AxisSet shards) {
    layout::ParamSpec& spec = parameter.spec;
    std::erase_if(spec.cuts, [&](const layout::Cut& cut) { return cut.axes == spec.shards; });
    parameter.set = 1;
    spec.shards = shards;
    if (mesh.degree(shards) > 1) spec.cuts.push_back({shards, 0, mesh.degree(shards)});
    AxisSet summed;
    for (const Axis axis : {Axis::Replicate, Axis::Shard, Axis::Context}) {
        if (!shards.has(axis) && mesh.degree(axis) > 1) summed.add(axis);
    }
    if (spec.gradient.axes.has(Axis::Tensor)) summed.add(Axis::Tensor);
    spec.gradient.axes = summed;
}

}  // namespace

SecondSets::SecondSets(const AxisSet& shards) { second_shards = &shards; }
SecondSets::~SecondSets() { second_shards = nullptr; }

ModelPlacement place(const model::ModelSpec& spec, const layout::MeshShape& mesh,
                     const std::vector<int>& stage_layers, StageOrder order) {
    ModelPlacement placement = real_place(spec, mesh, stage_layers, order);
    for (auto& unit : placement.units) {
        for (model::Parameter& parameter : unit) {
            const bool moves =
                parameter.is_projection && parameter.spec.name.find("feed_forward.w") != std::string::npos;
            if (second_shards != nullptr && moves) move_to_second_set(parameter, mesh, *second_shards);
        }
    }
    return placement;
}

}  // namespace argosy::testing
