// One job at a time writes a folder: who comes second is told by whom it is held, but a job waits for what is
// left of itself.
#include "resume/run_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stop_token>
#include <string>
#include <thread>

#include "expect_error.h"
#include "resume/joint_work.h"
#include "support/shared_folder.h"
#include "support/world.h"

namespace argosy::resume {
namespace {

namespace fs = std::filesystem;
using ::argosy::testing::world;

class RunLocks : public ::testing::Test {
  protected:
    RunLocks() {
        config_.job.dump_folder = folder_ / "run";
        environment_.slurm_job_id = "12";
    }

    /// COLLECTIVE.
    static void barrier() { JointWork(world()).run(nullptr); }
    bool is_first() const { return world().rank() == 0; }
    fs::path path() const { return folder_ / "run" / "run.lock"; }

    ::argosy::testing::SharedFolder folder_{world()};
    config::JobConfig config_;
    Environment environment_;
};

TEST_F(RunLocks, ASecondJobIsRefused) {
    {
        const RunLock lock(config_, environment_, world());
        barrier();
        std::string holder;
        std::getline(std::ifstream(path()), holder);
        EXPECT_TRUE(holder.starts_with("job 12, process ")) << holder;
        for (const std::string other : {"1", "123", ""}) {
            environment_.slurm_job_id = other;
            EXPECT_ERROR(RunLock(config_, environment_, world()), UserError,
                         "in use by another run (job 12, process ", "job.dump_folder");
        }
        barrier();
    }
    barrier();
    const RunLock again(config_, environment_, world());
}

TEST_F(RunLocks, OneJobSavesToAFolderOfSteps) {
    config_.checkpoint.enable = true;
    {
        const RunLock lock(config_, environment_, world());
        config_.job.dump_folder = folder_ / "other";
        config_.checkpoint.folder = folder_ / "run" / "checkpoint";
        EXPECT_ERROR(RunLock(config_, Environment(), world()), UserError, "checkpoint.folder",
                     "checkpoint is in use by another run");
        if (is_first()) {
            EXPECT_FALSE(fs::exists(config_.job.dump_folder));
        }
        barrier();
        config_.checkpoint.load_only = true;
        { const RunLock reads(config_, Environment(), world()); }
        config_.checkpoint = {.enable = true, .folder = "."};
        const RunLock with_one_folder(config_, Environment(), world());
        barrier();
    }
    barrier();
    EXPECT_FALSE(fs::exists(folder_ / "run") || fs::exists(folder_ / "other"));
    barrier();
}

TEST_F(RunLocks, LeaveNothingWhereNothingElseIs) {
    { const RunLock lock(config_, environment_, world()); }
    barrier();
    EXPECT_FALSE(fs::exists(config_.job.dump_folder));
    barrier();
    {
        const RunLock lock(config_, environment_, world());
        if (is_first()) std::ofstream(path().parent_path() / "metrics.jsonl");
    }
    barrier();
    EXPECT_TRUE(fs::exists(path().parent_path() / "metrics.jsonl"));
    EXPECT_FALSE(fs::exists(path()));
    barrier();
}

TEST_F(RunLocks, AFolderThatWasThereStays) {
    const fs::path folder = config_.job.dump_folder, link = folder_ / "link";
    if (is_first()) {
        fs::create_directory(folder);
        fs::create_directory_symlink(folder, link);
    }
    barrier();
    { const RunLock lock(config_, environment_, world()); }
    barrier();
    EXPECT_TRUE(fs::is_directory(folder));
    config_.job.dump_folder = link.string();
    { const RunLock lock(config_, environment_, world()); }
    barrier();
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_TRUE(fs::is_empty(folder));
    barrier();
}

TEST_F(RunLocks, FoldersThatComeAndGoAreNoError) {
    // Ends with the scope, whatever is thrown.
    const std::jthread other([&](const std::stop_token& over) {
        while (is_first() && !over.stop_requested()) {
            rmdir(config_.job.dump_folder.c_str());
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    });
    for (int i = 0; i < 200; ++i) {
        const RunLock lock(config_, environment_, world());
    }
}

TEST_F(RunLocks, WhatADeadProcessLeftHoldsNobody) {
    if (is_first()) {
        fs::create_directories(config_.job.dump_folder);
        std::ofstream(path()) << "job 11, process 1 on elsewhere";
    }
    barrier();
    const RunLock lock(config_, environment_, world());
}

TEST_F(RunLocks, AJobWaitsForWhatIsLeftOfItself) {
    std::thread rest;
    if (is_first()) {
        fs::create_directories(config_.job.dump_folder);
        std::ofstream(path()) << "job 12, process 1 on elsewhere";
        const int file = open(path().c_str(), O_RDWR | O_CLOEXEC);
        ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
        rest = std::thread([file] {
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
            close(file);
        });
    }
    barrier();
    { const RunLock lock(config_, environment_, world()); }
    if (rest.joinable()) rest.join();
}

/// A start again would meet the same, but it is no mistake of the user's.
TEST_F(RunLocks, WhatIsLeftOfThisJobAndDoesNotEndIsAFailure) {
    int file = -1;
    if (is_first()) {
        fs::create_directories(config_.job.dump_folder);
        std::ofstream(path()) << "job 12, process 1 on elsewhere";
        file = open(path().c_str(), O_RDWR | O_CLOEXEC);
        ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
    }
    barrier();
    config_.comm.train_timeout_seconds = -static_cast<int>(RunLock::kSecondsToEnd);
    EXPECT_ERROR(RunLock(config_, environment_, world()), JobError, "still locked",
                 "this job (job 12, process 1 on elsewhere)");
    if (is_first()) close(file);
    barrier();
    const RunLock again(config_, environment_, world());
}

TEST_F(RunLocks, AFolderThatIsRemovedDuringTheRunIsLockedAgain) {
    RunLock lock(config_, environment_, world());
    lock.check();
    if (is_first()) fs::remove_all(config_.job.dump_folder);
    lock.check();
    barrier();
    EXPECT_ERROR(RunLock(config_, Environment(), world()), UserError, "in use by another run");
}

TEST_F(RunLocks, ARunEndsIfAnotherRunTakesItsFolder) {
    RunLock lock(config_, environment_, world());
    if (is_first()) fs::remove_all(config_.job.dump_folder);
    barrier();
    const RunLock other(config_, Environment(), world());
    if (is_first()) {
        EXPECT_ERROR(lock.check(), Error, "was removed during this run, and another run (", "now uses it");
    }
    barrier();
    if (is_first()) {
        EXPECT_TRUE(fs::exists(path())) << "the other run's";
    }
}

TEST_F(RunLocks, AFolderThatCannotBe) {
    if (is_first()) std::ofstream(folder_ / "file");
    barrier();
    config_.job.dump_folder = folder_ / "file" / "run";
    EXPECT_ERROR(RunLock(config_, environment_, world()), UserError, "cannot make", "Not a directory",
                 "job.dump_folder");
    barrier();
}

}  // namespace
}  // namespace argosy::resume
