// Steps that the machine cannot read are no mistake of the user's: where nothing else is intact the job fails
// in a way after which it is started again, and the same steps are resumed from once they can be read.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>

#include "expect_error.h"
#include "resume/saved_run.h"
#include "support/shared_folder.h"
#include "support/world.h"

namespace {

std::atomic<const char*> unreadable{nullptr};  // a part of the paths that the disk does not read

}  // namespace

// In place of the C library's, for everything in this executable.
extern "C" ssize_t pread(int descriptor, void* bytes, size_t size, off_t offset) {
    if (const char* const part = unreadable) {
        const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
        if (path.string().find(part) != std::string::npos) {
            errno = EIO;
            return -1;
        }
    }
    return ::syscall(SYS_pread64, descriptor, bytes, size, offset);
}

namespace argosy::testing {
namespace {

namespace fs = std::filesystem;

class Unreadable : public ::testing::Test {
  protected:
    /// Saves steps 2 and 4.
    Unreadable() {
        config_.checkpoint.interval = 2;
        SavedRun run(options(), config_, world());
        for (int i = 0; i < 4; ++i) run.step();
        run.finish();
    }
    ~Unreadable() override { unreadable = nullptr; }

    static TinyRunOptions options() {
        return {.family = "qwen2",
                .layout = {"ddp", {.replicate = world().size()}},
                .precision = {at::kFloat, at::kFloat, at::kFloat}};
    }

    resume::Start restore() { return SavedRun(options(), config_, world()).restore(); }

    /// COLLECTIVE: cuts the last byte off the manifest.
    void tear(const std::string& step) {
        const fs::path manifest = steps() / step / "checkpoint.h5";
        if (world().rank() == 0) fs::resize_file(manifest, fs::file_size(manifest) - 1);
        const SharedFolder barrier(world());
    }
    fs::path steps() const { return folder_ / "run/checkpoint"; }

    SharedFolder folder_{world()};
    config::JobConfig config_ = saving_config(folder_ / "run");
};

TEST_F(Unreadable, FailsTheJobAndIsResumedFromLater) {
    for (const char* const part : {"/step-", "/shard-"}) {
        for (const bool verify : {true, false}) {
            config_.checkpoint.verify_on_load = verify;
            unreadable = part;
            EXPECT_ERROR(restore(), JobError, "none of the 2 steps", "Input/output error",
                         "start the job again");
        }
    }
    config_.checkpoint.load_step = 2;
    EXPECT_ERROR(restore(), JobError, "step 2 in", "Input/output error");
    unreadable = nullptr;
    EXPECT_EQ(restore().position.step, 2);
    config_.checkpoint.load_step = config::Checkpoint::kNewest;
    EXPECT_EQ(restore().position.step, 4);
}

TEST_F(Unreadable, IsSoInAnotherRunToBeginWith) {
    config_.checkpoint.initial_load_path = (folder_ / "run").string();
    config_.job.dump_folder = (folder_ / "new").string();
    unreadable = "/step-";
    EXPECT_ERROR(restore(), JobError, "none of the 2 steps", "Input/output error");
    unreadable = nullptr;
    EXPECT_FALSE(restore().resumed);
}

TEST_F(Unreadable, CountsThoughAnotherStepIsDamaged) {
    tear("step-00000002");  // which is looked at last
    unreadable = "/step-00000004";
    EXPECT_ERROR(restore(), JobError, "none of the 2 steps", "Input/output error");
    unreadable = nullptr;
    tear("step-00000004");
    EXPECT_ERROR(restore(), UserError, "none of the 2 steps", "checkpoint.folder");
}

}  // namespace
}  // namespace argosy::testing
