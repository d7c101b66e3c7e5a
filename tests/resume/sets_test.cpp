// A run with parameters that are cut over other axes than dense ones saves steps of format 3.0, and any mesh
// loads what any other saved: the same bits.
#include <gtest/gtest.h>

#include "parallel/placement.h"
#include "resume/saved_run.h"
#include "scratch_folder.h"
#include "support/shared_folder.h"
#include "support/world.h"
#include "train/second_sets.h"

namespace argosy::testing {
namespace {

using layout::Axis;
using layout::AxisSet;

/// The first line of a step's manifest.
std::string format_of(const std::filesystem::path& folder) {
    const std::string text = read_file(folder / "checkpoint" / "step-00000001" / "checkpoint.h5");
    return text.substr(0, text.find('\n'));
}

TEST(Sets, AreSavedAndLoadedByAnyMesh) {
    struct Case {
        Layout layout;
        AxisSet shards;
        std::string format;
    };
    const int tensor = world().size() == 8 ? 2 : 1;
    // The last stage is the head alone, which has no second set.
    const Case pipeline =
        tensor == 1
            ? Case{{"pipeline", {.pipeline = 2, .context = 2}, {5, 0}}, AxisSet(), "2.0"}
            : Case{{"pipeline", {.pipeline = 2, .shard = 2, .context = 2}, {5, 0}}, Axis::Shard, "3.0"};
    const std::vector<Case> cases = {
        {{"shard", {.shard = 2, .context = 2, .tensor = tensor}}, Axis::Shard, "3.0"},
        {{"context", {.shard = 2, .context = 2, .tensor = tensor}}, Axis::Context, "3.0"},
        pipeline,
        {{"dense", {.shard = 2, .context = 2, .tensor = tensor}}, parallel::kDenseShards, "2.0"}};
    for (const Case& saved : cases) {
        SCOPED_TRACE("saved by " + saved.layout.name);
        const SharedFolder folder(world());
        const config::JobConfig config = saving_config(folder / "run");
        WholeState state;
        {
            const SecondSets active(saved.shards);
            SavedRun run({.layout = saved.layout}, config, world());
            run.step();
            run.finish();
            state = whole_state(run.run());
        }
        EXPECT_EQ(format_of(folder / "run"), "argosy checkpoint " + saved.format);
        for (const Case& loaded : cases) {
            SCOPED_TRACE("loaded by " + loaded.layout.name);
            const SharedFolder barrier(world());
            const SecondSets active(loaded.shards);
            SavedRun run({.layout = loaded.layout}, config, world());
            EXPECT_TRUE(run.restore().resumed);
            const WholeState found = whole_state(run.run());
            if (world().rank() == 0) expect_equal(found, state);
        }
    }
}

}  // namespace
}  // namespace argosy::testing
