// What saving and loading cost, and what a save that fails leaves behind.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "checkpoint/step_folder.h"
#include "checkpoint/tensor_file.h"
#include "expect_error.h"
#include "resume/loaded_parts.h"
#include "resume/saved_run.h"
#include "support/shared_folder.h"
#include "support/world.h"

namespace argosy::testing {
namespace {

namespace fs = std::filesystem;

constexpr parallel::Precision kFloat{at::kFloat, at::kFloat, at::kFloat};

TinyRunOptions options(const Layout& layout) {
    return {.family = "qwen2", .layout = layout, .precision = kFloat};
}

Layout ddp() { return {"ddp", {.replicate = world().size()}}; }

std::vector<Layout> layouts() {
    const int ranks = world().size();
    if (ranks < 4) return {ddp(), {"fsdp", {.shard = ranks}}};
    return {ddp(),
            {"fsdp", {.shard = ranks}},
            {"pp", {.pipeline = ranks}, {1, 2, 2, 0}},
            {"hsdp", {.replicate = 2, .shard = ranks / 2}},
            {"tp2_pp2", {.pipeline = 2, .tensor = 2}, {2, 3}}};
}

/// Bytes of the slabs, and the most that reading them may cost: rows of a cut that are less than a page apart
/// are read with what lies between.
struct Needed {
    int64_t exactly = 0, at_most = 0;
};
Needed needed(const std::vector<resume::HeldSlab>& slabs) {
    Needed sum;
    for (const resume::HeldSlab& held : slabs) {
        const int64_t size = size_bytes(held.tensor.type);
        sum.exactly += held.slab.num_elements() * size;
        int64_t whole_rows = held.slab.size[0];
        for (size_t dim = 1; dim < held.tensor.shape.size(); ++dim) whole_rows *= held.tensor.shape[dim];
        sum.at_most += whole_rows * size;
    }
    return sum;
}

TEST(Loading, ReadsOnlyTheBytesThatTheRankNeeds) {
    for (const Layout& saver : layouts()) {
        SCOPED_TRACE("saved by " + saver.name);
        const SharedFolder folder(world());
        const config::JobConfig config = saving_config(folder / "run");
        SavedRun saved(options(saver), config, world());
        saved.step();
        saved.finish();
        for (const Layout& loader : layouts()) {
            SCOPED_TRACE("loaded by " + loader.name);
            SavedRun run(options(loader), config, world());
            std::vector<resume::HeldSlab> slabs = run.state().weights().slabs();
            slabs.insert(slabs.end(), run.state().states().begin(), run.state().states().end());
            const checkpoint::Checkpoint checkpoint(checkpoint::step_path(folder / "run/checkpoint", 1));
            EXPECT_EQ(checkpoint.bytes_read(), 0);
            resume::load_slabs(checkpoint, slabs);
            const Needed bytes = needed(slabs);
            EXPECT_GE(checkpoint.bytes_read(), bytes.exactly);
            EXPECT_LE(checkpoint.bytes_read(), bytes.at_most);
            if (loader.mesh.tensor == 1) {
                EXPECT_EQ(bytes.at_most, bytes.exactly);
            }
            if (loader.mesh.replicate == 1 && loader.mesh.tensor == 1) {
                EXPECT_LT(bytes.exactly, 3 * 4 * model::num_parameters(tiny_spec("qwen2")) * 3 / 4);
            }
        }
    }
}

/// Not the first alone: each writes about as much.
TEST(Saving, ReplicasShareTheWriting) {
    const SharedFolder folder(world());
    SavedRun run(options(ddp()), saving_config(folder / "run"), world());
    run.step();
    run.finish();
    const checkpoint::Checkpoint checkpoint(checkpoint::step_path(folder / "run/checkpoint", 1));
    const auto& files = checkpoint.manifest().files;
    ASSERT_EQ(std::ssize(files), world().size());
    std::vector<int64_t> bytes(files.size(), 0);
    int64_t all = 0;
    for (const checkpoint::TensorInfo& tensor : checkpoint.tensors()) {
        for (const checkpoint::StoredSlab& slab : checkpoint.slabs(tensor)) {
            const int64_t size = slab.slab.num_elements() * size_bytes(tensor.type);
            bytes[slab.file] += size;
            all += size;
        }
    }
    EXPECT_EQ(all, 3 * 4 * model::num_parameters(tiny_spec("qwen2")));
    for (const int64_t own : bytes) EXPECT_GT(own * std::ssize(files), all / 4);
}

TEST(Saving, FourSavesKeepTheNewestAndTheMilestones) {
    const SharedFolder folder(world());
    config::JobConfig config = saving_config(folder / "run");
    config.checkpoint.keep_latest_k = 2;
    config.checkpoint.keep_every = 4;
    config.checkpoint.enable_first_step_checkpoint = true;
    config.checkpoint.interval = 2;
    SavedRun run(options(ddp()), config, world());
    for (int i = 0; i < 10; ++i) run.step();
    run.finish();
    EXPECT_EQ(checkpoint::whole_steps(folder / "run/checkpoint"), (std::vector<int64_t>{4, 8, 10}));
}

TEST(Saving, AFirstStepIsSavedOnRequest) {
    const SharedFolder folder(world());
    config::JobConfig config = saving_config(folder / "run");
    config.checkpoint.enable_first_step_checkpoint = true;
    config.checkpoint.interval = 100;
    config.checkpoint.async_mode = config::AsyncMode::Disabled;
    SavedRun run(options(ddp()), config, world());
    for (int i = 0; i < 2; ++i) run.step();
    EXPECT_EQ(checkpoint::whole_steps(folder / "run/checkpoint"), (std::vector<int64_t>{1}))
        << "already there";
    run.finish();
    EXPECT_EQ(checkpoint::whole_steps(folder / "run/checkpoint"), (std::vector<int64_t>{1, 2}));
}

/// A limit on the size of files that one rank writes, as a disk that is full there.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit now{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &now);
    }
    ~FileSizeLimit() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    rlimit before_{};
    void (*handler_)(int);
};

TEST(Saving, AFailedWriterIsAnErrorOfAllAndLosesNothing) {
    const SharedFolder folder(world());
    const fs::path steps = folder / "run/checkpoint";
    config::JobConfig config = saving_config(folder / "run");
    SavedRun run(options(ddp()), config, world()),
        twin(options(ddp()), saving_config(folder / "twin"), world());
    for (SavedRun* each : {&run, &twin}) {
        for (int i = 0; i < 2; ++i) each->step();
        each->checkpointer().finish_save_under_way();
    }
    const int last = world().size() - 1;
    {
        std::optional<FileSizeLimit> limit;
        if (world().rank() == last) limit.emplace(10000);
        run.step();
        EXPECT_ERROR(run.checkpointer().finish_save_under_way(), JobError,
                     fmt::format("the checkpoint of step 3 was not written: rank {}: ", last),
                     "step-00000003", "File too large", "Earlier checkpoints are unchanged");
    }
    EXPECT_EQ(checkpoint::whole_steps(steps), (std::vector<int64_t>{1, 2}));
    EXPECT_FALSE(fs::exists(checkpoint::partial_path(steps / "step-00000003")));
    EXPECT_TRUE(checkpoint::Checkpoint(steps / "step-00000002").faults().empty());

    // The run itself is unharmed, and may save again.
    twin.step();
    for (SavedRun* each : {&run, &twin}) each->step();
    run.finish();
    twin.finish();
    EXPECT_EQ(checkpoint::whole_steps(steps), (std::vector<int64_t>{1, 2, 4}));
    expect_equal(whole_state(run.run()), whole_state(twin.run()));
    SavedRun resumed(options(ddp()), config, world());
    resumed.restore();
    expect_equal(whole_state(resumed.run()), whole_state(twin.run()));
}

TEST(Saving, AFolderThatCannotBeMadeIsSaidAtOnce) {
    const SharedFolder folder(world());
    if (world().rank() == 0) std::ofstream(folder / "run") << "a file in the way";
    const SharedFolder barrier(world());
    SavedRun run(options(ddp()), saving_config(folder / "run"), world());
    EXPECT_ERROR(run.checkpointer(), UserError, (folder / "run").string(), "is not a folder");
}

/// Sound bytes with a state that nobody wrote.
TEST(Loading, AStateThatCannotBeReadIsPassedOver) {
    const SharedFolder folder(world());
    const fs::path steps = folder / "run/checkpoint";
    const config::JobConfig config = saving_config(folder / "run");
    SavedRun run(options(ddp()), config, world());
    for (int i = 0; i < 2; ++i) run.step();
    run.finish();
    if (world().rank() == 0) {
        const checkpoint::Checkpoint second(steps / "step-00000002");
        const checkpoint::SavePlan& plan = second.manifest().plan;
        const checkpoint::Hash nonce{1, 2};
        const fs::path partial = checkpoint::start_step(steps, 3, plan.num_writers());
        for (int writer = 0; writer < plan.num_writers(); ++writer) {
            auto file = checkpoint::TensorFile::shard(partial, nonce, plan, writer);
            const auto slabs = checkpoint::slabs_of(plan, writer);
            for (size_t i = 0; i < slabs.size(); ++i)
                file.append(i, std::vector<std::byte>(slabs[i].num_bytes()));
            file.finish();
        }
        checkpoint::Description description = second.description();
        description.step = 3;
        description.state = R"({"step":3,"samples":9223372036854775807})";
        checkpoint::commit_step(steps, description, nonce, plan, {});
    }
    const SharedFolder barrier(world());
    SavedRun resumed(options(ddp()), config, world());
    EXPECT_TRUE(resumed.restore().resumed);
    EXPECT_EQ(resumed.position().step, 2);
    expect_equal(whole_state(resumed.run()), whole_state(run.run()));
}

/// What the process has allocated and not freed. Its resident memory also moves with the allocator's habits.
int64_t allocated_bytes() {
    const auto info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

/// Of steps that are not trained: the state changes nothing about memory.
TEST(Saving, TwoHundredSavesDoNotGrowMemory) {
    if (world().size() > 2) GTEST_SKIP() << "two ranks show it, and more outnumber the cores";
    const SharedFolder folder(world());
    config::JobConfig config = saving_config(folder / "run");
    config.checkpoint.keep_latest_k = 2;
    SavedRun run(options(ddp()), config, world());
    int64_t early = 0;
    for (int64_t step = 1; step <= 200; ++step) {
        run.checkpointer().after_step({step, step, step});
        run.checkpointer().finish_save_under_way();
        if (step == 50) early = allocated_bytes();
    }
    const int64_t late = allocated_bytes();
    // The state is 1.4 MB on each rank: a copy that leaks shows at once, and a table of names after a while.
    EXPECT_LT(late - early, 1 << 14) << "from " << early << " to " << late;
}

}  // namespace
}  // namespace argosy::testing
