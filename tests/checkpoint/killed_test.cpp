// Saves that are killed, at each failpoint and at random: what is whole stays whole, and the next save works.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>

#include "checkpoint/sample.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<int64_t>;

/// Runs `work` in a child process that dies at the failpoint, and says that it did.
bool dies_at(const std::string& failpoint, const std::function<void()>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::setenv("ARGOSY_FAILPOINT", failpoint.c_str(), 1);
        work();
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

class Killed : public ::testing::Test {
  protected:
    Killed() {
        for (int i = 0; i < 3; ++i) samples_.push_back(random_sample(random_, 5));
    }

    /// Step N holds sample N % 3, or another where it is written again.
    void save(int64_t step, int sample) {
        write_step(random_, folder_ / "run", samples_[sample], 3, step);
        remove_old_steps(folder_ / "run", {.keep_latest = 2});
    }

    /// The sample that a step holds in full; -1: none, because the step is damaged.
    int held(int64_t step) {
        const Checkpoint checkpoint(step_path(folder_ / "run", step));
        if (!checkpoint.faults().empty()) return -1;
        for (size_t i = 0; i < samples_.size(); ++i) {
            bool same = true;
            for (const TensorInfo& tensor : samples_[i].tensors) {
                const TensorInfo* found = checkpoint.find(tensor.name);
                same = same && found && *found == tensor &&
                       read(checkpoint, tensor, layout::whole(tensor.shape)) ==
                           samples_[i].bytes.at(tensor.name);
            }
            if (same) return static_cast<int>(i);
        }
        return -1;
    }
    Steps steps() const { return whole_steps(folder_ / "run"); }

    /// A save after the kill leaves nothing of it, nothing but two whole steps.
    void expect_recovery(int64_t step) {
        save(step, 2);
        EXPECT_EQ(steps().size(), 2);
        EXPECT_EQ(steps().back(), step);
        EXPECT_EQ(held(step), 2);
        const fs::directory_iterator entries(folder_ / "run");
        EXPECT_EQ(std::distance(begin(entries), end(entries)), 2);
    }

    Random random_{3};
    ScratchFolder folder_;
    std::vector<Sample> samples_;
};

TEST_F(Killed, AtEachPlaceOfASaveTheStepsBeforeStayWhole) {
    for (const char* place :
         {"step_started", "shard_laid_out:2", "shard_half_written:3", "shard_finished", "shard_finished:3",
          "manifest_written", "before_rename", "after_rename", "before_retention"}) {
        SCOPED_TRACE(place);
        fs::remove_all(folder_ / "run");
        save(10, 0);
        save(20, 1);
        ASSERT_TRUE(dies_at(place, [&] { save(30, 2); }));
        const bool after = std::string(place) == "after_rename" || std::string(place) == "before_retention";
        EXPECT_EQ(steps(), after ? (Steps{10, 20, 30}) : (Steps{10, 20}));
        EXPECT_EQ(held(10), 0);
        EXPECT_EQ(held(20), 1);
        EXPECT_EQ(after ? held(30) : 2, 2);
        expect_recovery(40);
    }
}

TEST_F(Killed, WhileAStepIsWrittenAgainTheOldOrTheNewIsThere) {
    for (const char* place :
         {"step_started", "shard_half_written:3", "manifest_written", "before_rename", "after_rename"}) {
        SCOPED_TRACE(place);
        fs::remove_all(folder_ / "run");
        save(10, 0);
        ASSERT_TRUE(dies_at(place, [&] { save(10, 1); }));
        EXPECT_EQ(steps(), Steps{10});
        EXPECT_EQ(held(10), std::string(place) == "after_rename" ? 1 : 0);
        expect_recovery(20);
    }
}

// The order of renames that other file systems need.
TEST_F(Killed, BetweenTwoRenamesTheOldStepIsFound) {
    save(10, 0);
    const fs::path place = step_path(folder_ / "run", 10),
                   next = write_step(random_, folder_ / "other", samples_[1], 2);
    fs::rename(next, partial_path(place));
    ASSERT_TRUE(dies_at("old_one_aside", [&] { replace_in_order(partial_path(place), place); }));
    EXPECT_FALSE(fs::exists(place));
    EXPECT_EQ(steps(), Steps{10});
    EXPECT_EQ(held(10), 0);
    save(10, 1);
    EXPECT_EQ(steps(), Steps{10});
    EXPECT_EQ(held(10), 1);
    expect_recovery(20);
}

TEST_F(Killed, AtRandomTimesNothingIsLost) {
    save(1, 1);
    for (int round = 0; round < 30; ++round) {
        const int64_t before = steps().back();
        const pid_t child = ::fork();
        if (child == 0) {
            for (int64_t step = before + 1;; ++step) save(step, static_cast<int>(step % 3));
        }
        ::usleep(static_cast<useconds_t>(below(random_, 40000)));
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        ASSERT_GE(steps().size(), 1);
        ASSERT_GE(steps().back(), before);
        for (const int64_t step : steps())
            ASSERT_EQ(held(step), step % 3) << "step " << step << " in round " << round;
    }
}

}  // namespace
}  // namespace argosy::checkpoint
