// Sets of a unit with shard axes of their own: the feed-forward matrices of every block are a second set,
// which is sharded over fewer axes than the rest, over more, or over none. Every layout still computes what
// one rank computes.
#include <gtest/gtest.h>

#include "parallel/placement.h"
#include "support/world.h"
#include "train/tiny_run.h"

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

constexpr double kTolerance = 1e-12;
constexpr int kNumSteps = 3;

/// The shard axes of the second set; null while one rank runs.
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

/// Those of the axes that have more than one rank.
AxisSet used(const layout::MeshShape& mesh, AxisSet axes) {
    return mesh.degree(axes) > 1 ? mesh.used(axes) : AxisSet();
}

struct SecondSets {
    explicit SecondSets(const AxisSet& shards) { second_shards = &shards; }
    ~SecondSets() { second_shards = nullptr; }
};

struct Results {
    NamedTensors gradients;
    std::vector<double> losses, norms;
};

Results results_of(const TinyRunOptions& options, comm::Communicator& ranks) {
    TinyRun run(options, ranks);
    Results results;
    for (parallel::Stage& stage : run.trainer().model().stages()) {
        const size_t block = stage.number == 0 ? 1 : 0;  // the first stage has the embedding
        if (second_shards == nullptr || block >= stage.layers.size()) continue;
        EXPECT_EQ(stage.units[block].sets().size(), 2);
    }
    for (int step = 0; step < kNumSteps; ++step) {
        const train::StepTotals totals = run.forward_backward(step);
        if (step == 0) results.gradients = run.gradients();
        const train::StepResult result = run.update(totals);
        results.losses.push_back(result.loss);
        results.norms.push_back(result.grad_norm);
    }
    return results;
}

constexpr const char* kFamily = "olmo3";

TEST(Sets, WithOtherShardAxesEqualOneRank) {
    const Results expected =
        results_of({.family = kFamily, .microbatch_size = TinyRun::kGlobalBatch}, self());
    int num_unlike = 0;
    for (const Layout& layout : every_layout(world().size())) {
        const layout::MeshShape mesh = layout::resolve(layout.mesh, world().size());
        for (const AxisSet shards : {AxisSet(Axis::Shard), AxisSet(Axis::Context), AxisSet(),
                                     AxisSet{Axis::Replicate, Axis::Shard, Axis::Context}}) {
            if (used(mesh, shards) == used(mesh, parallel::kDenseShards)) continue;
            SCOPED_TRACE(layout.name + ", second set over " + shards.name());
            const SecondSets active(shards);
            const Results found = results_of(
                {.family = kFamily, .layout = layout, .recompute = model::RecomputeMode::Selective}, world());
            const Difference difference = largest_difference(found.gradients, expected.gradients);
            EXPECT_LE(difference.relative, kTolerance) << difference.name;
            for (int step = 0; step < kNumSteps; ++step) {
                EXPECT_NEAR(found.losses[step], expected.losses[step], kTolerance * 10);
                EXPECT_NEAR(found.norms[step] / expected.norms[step], 1, kTolerance * 10);
            }
            ++num_unlike;
        }
    }
    EXPECT_GT(num_unlike, 15);
}

}  // namespace

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
