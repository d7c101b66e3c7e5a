// The report of a rank's memory, computed before the step and from its tensors after it, against the
// allocator's count.
#include <gtest/gtest.h>

#include "account/layouts.h"
#include "observe/memory.h"
#include "ops/ops_context.h"
#include "plan/rank_trace.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::plan {
namespace {

using account::layouts;
using testing::Layout;

observe::MemoryMeter& meter() {
    static observe::MemoryMeter installed = observe::MemoryMeter::install();
    return installed;
}

struct Types {
    parallel::Precision precision;
    std::optional<at::ScalarType> moments = {};
};

const std::vector<Types> kTypes = {
    {{at::kFloat, at::kBFloat16, at::kFloat}},
    {{at::kFloat, at::kFloat, at::kFloat}},
    {{at::kDouble, at::kDouble, at::kDouble}},
    {{at::kBFloat16, at::kBFloat16, at::kFloat}, at::kBFloat16},
    {{at::kBFloat16, at::kBFloat16, at::kFloat, /*bf16_gradients=*/true}, at::kBFloat16},
};

train::TrainerOptions options_of(const Layout& layout, const std::string& family, const Types& types) {
    return {.spec = testing::tiny_spec(family),
            .precision = types.precision,
            .stage_layers = layout.stage_layers,
            .seq_len = 12,
            .num_microbatches = 2,
            .step = {.adamw = {.moments = types.moments}}};
}

TEST(HeldBytes, EqualThePlanAndTheAllocatorsCount) {
    const ops::OpsContext tensors;
    for (const Layout& layout : layouts()) {
        comm::Mesh mesh(layout::resolve(layout.mesh, testing::world().size()), testing::world());
        for (const char* family : {"llama3", "qwen2"}) {
            for (const Types& types : kTypes) {
                SCOPED_TRACE(layout.name + " " + family + " " + toString(types.precision.master));
                const train::TrainerOptions options = options_of(layout, family, types);
                const HeldBytes planned = planned_bytes(options, mesh.shape(), mesh.world().rank());
                const int64_t before = meter().current_bytes();
                train::Trainer trainer(options, mesh);
                const int64_t counted = meter().current_bytes() - before;
                const HeldBytes held = held_bytes(trainer.model(), trainer.step().optimizer());
                EXPECT_EQ(held.weights, planned.weights);
                EXPECT_EQ(held.copies, planned.copies);
                EXPECT_EQ(held.gradients, planned.gradients);
                EXPECT_EQ(held.moments, planned.moments);
                EXPECT_EQ(held.gathered, 0);
                constexpr int64_t kMaxForAngles = 4096;  // of the rotation, and some numbers
                EXPECT_GE(counted, held.total());
                EXPECT_LE(counted, held.total() + kMaxForAngles);
            }
        }
    }
}

// Weights, gradient and two moments in two bytes each.
TEST(HeldBytes, AreEightPerParameterWithEverythingInBf16) {
    comm::Mesh mesh(layout::resolve({.shard = 1}, 1), testing::self());
    train::TrainerOptions options = options_of({"one"}, "llama3", kTypes.back());
    options.spec = model::preset("qwen2", "7B");
    EXPECT_EQ(planned_bytes(options, mesh.shape(), mesh.world().rank()).total(),
              8 * model::num_parameters(options.spec));
    options.precision.bf16_gradients = false;
    EXPECT_EQ(planned_bytes(options, mesh.shape(), mesh.world().rank()).total(),
              10 * model::num_parameters(options.spec));
}

TEST(HeldBytes, HaveUnitsThatAreGathered) {
    const ops::OpsContext tensors;
    const Layout layout = layouts()[0];
    comm::Mesh mesh(layout::resolve(layout.mesh, testing::world().size()), testing::world());
    train::Trainer trainer(options_of(layout, "llama3", kTypes[0]), mesh);
    const auto held = [&] { return held_bytes(trainer.model(), trainer.step().optimizer()); };
    parallel::ShardedUnit& unit = trainer.model().stages()[0].units[1];
    if (!unit.sharded()) return;
    const HeldBytes before = held();
    const int64_t counted_before = meter().current_bytes();
    unit.gather();
    unit.weights();
    EXPECT_EQ(held().gathered, meter().current_bytes() - counted_before);
    EXPECT_GT(held().gathered, 0);
    unit.gradients();
    EXPECT_EQ(held().total() - before.total(), meter().current_bytes() - counted_before);
    EXPECT_EQ(held().gradients - before.gradients, 2 * held().gathered) << "fp32 beside bf16";
    unit.release();
    EXPECT_EQ(held().gathered, 0);
}

}  // namespace
}  // namespace argosy::plan
