// Steps of a continuation that the run went back behind: out of the way, durably, and for as long as they are
// of use.
#include "resume/saved_steps.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <set>

#include "checkpoint/step_folder.h"
#include "scratch_folder.h"

namespace {

std::set<std::string> synced;

}  // namespace

// In place of the C library's, for everything in this executable.
extern "C" int fsync(int descriptor) {
    synced.insert(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string());
    return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace argosy::resume {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

class SavedSteps : public ::testing::Test {
  protected:
    void make(const Names& names) {
        for (const std::string& name : names) fs::create_directories(folder_ / name / "deep");
    }
    Names names() const {
        Names all;
        for (const auto& entry : fs::directory_iterator(folder_ / "")) all.insert(entry.path().filename());
        return all;
    }
    ScratchFolder folder_;
};

TEST_F(SavedSteps, LaterOnesAreSetAsideDurably) {
    make(
        {"step-00000002", "step-00000004", "step-00000006", "step-00000006.aside", "step-00000008.replaced"});
    synced.clear();
    EXPECT_TRUE(set_aside_later_steps(folder_ / "", 4));
    EXPECT_EQ(names(), (Names{"step-00000002", "step-00000004", "step-00000006.aside",
                              "step-00000006.aside-2", "step-00000008.aside"}));
    EXPECT_EQ(checkpoint::whole_steps(folder_ / ""), (std::vector<int64_t>{2, 4}));
    EXPECT_EQ(synced.count(fs::path(folder_ / "x").parent_path()), 1);
}

TEST_F(SavedSteps, AsidesThatTheRunHasPassedAreRemoved) {
    const Names others = {"step-00000002", "step-00000004.aside-", "step-00000004.aside-mine",
                          "step-4.aside",  "step-00000004.asides", "notes.aside"};
    const Names asides = {"step-00000004.aside",    "step-00000006.aside", "step-00000006.aside-2",
                          "step-00000006.aside-12", "step-00000008.aside", "step-00000005.aside"};
    make(others);
    make(asides);
    const Names all = names();
    remove_steps_set_aside(folder_ / "", 6, {.keep_latest = 0, .keep_every = 5});
    EXPECT_EQ(names(), all) << "all are kept";
    remove_steps_set_aside(folder_ / "", 6, {.keep_latest = 2, .keep_every = 5});
    Names left = others;
    left.insert({"step-00000005.aside", "step-00000008.aside"});  // a milestone, and one that is ahead
    EXPECT_EQ(names(), left);
    remove_steps_set_aside(folder_ / "absent", 6, {.keep_latest = 2});  // a warning
}

}  // namespace
}  // namespace argosy::resume
