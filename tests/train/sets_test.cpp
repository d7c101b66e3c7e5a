// Sets of a unit with shard axes of their own: the feed-forward matrices of every block are a second set,
// which is sharded over fewer axes than the rest, over more, or over none. Every layout still computes what
// one rank computes.
#include <gtest/gtest.h>

#include "parallel/placement.h"
#include "support/world.h"
#include "train/second_sets.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using layout::Axis;
using layout::AxisSet;

constexpr double kTolerance = 1e-12;
constexpr int kNumSteps = 3;

/// Those of the axes that have more than one rank.
AxisSet used(const layout::MeshShape& mesh, AxisSet axes) {
    return mesh.degree(axes) > 1 ? mesh.used(axes) : AxisSet();
}

struct Results {
    NamedTensors gradients;
    std::vector<double> losses, norms;
};

Results results_of(const TinyRunOptions& options, comm::Communicator& ranks, bool has_sets) {
    TinyRun run(options, ranks);
    Results results;
    for (parallel::Stage& stage : run.trainer().model().stages()) {
        const size_t block = stage.number == 0 ? 1 : 0;  // the first stage has the embedding
        if (!has_sets || block >= stage.layers.size()) continue;
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
        results_of({.family = kFamily, .microbatch_size = TinyRun::kGlobalBatch}, self(), false);
    int num_unlike = 0;
    for (const Layout& layout : every_layout(world().size())) {
        const layout::MeshShape mesh = layout::resolve(layout.mesh, world().size());
        for (const AxisSet shards : {AxisSet(Axis::Shard), AxisSet(Axis::Context), AxisSet(),
                                     AxisSet{Axis::Replicate, Axis::Shard, Axis::Context}}) {
            if (used(mesh, shards) == used(mesh, parallel::kDenseShards)) continue;
            SCOPED_TRACE(layout.name + ", second set over " + shards.name());
            const SecondSets active(shards);
            const Results found = results_of(
                {.family = kFamily, .layout = layout, .recompute = model::RecomputeMode::Selective}, world(),
                true);
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
}  // namespace argosy::testing
