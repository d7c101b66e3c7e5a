// A save fails because the disk is full. The error says so, removing the partial folder removes all traces,
// earlier checkpoints stay intact, and the next save in the same process works.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "base/raw_file.h"
#include "checkpoint/sample.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

/// While this object lives, no file of this process grows beyond `bytes`.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit = {bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    void (*handler_)(int);
    rlimit before_ = {};
};

/// Mounts a file system of a fixed size. mounted() is false if this process may not mount one.
class SmallDisk {
  public:
    SmallDisk(fs::path place, const std::string& options) : place_(std::move(place)) {
        fs::create_directory(place_);
        mounted_ = ::mount("none", place_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    }
    ~SmallDisk() {
        if (mounted_) ::umount(place_.c_str());
    }
    bool mounted() const { return mounted_; }

  private:
    fs::path place_;
    bool mounted_ = false;
};

class FullDisk : public ::testing::Test {
  protected:
    FullDisk() {
        for (int i = 0; i < 4; ++i) {
            sample_.add(random_, {"model/w" + std::to_string(i), ElementType::Float32, {50, 100}});
        }
    }
    /// Saves a checkpoint as a trainer does, and returns the error's message, or "" without an error.
    std::string save(const fs::path& run, int64_t step) {
        try {
            write_step(random_, run, sample_, 2, step);
            return {};
        } catch (const RunError& error) {
            remove_quietly(partial_path(run / step_name(step)));
            return error.what();
        }
    }
    void expect_steps(const fs::path& run, const std::vector<int64_t>& steps) {
        EXPECT_EQ(whole_steps(run), steps);
        const fs::directory_iterator entries(run);
        EXPECT_EQ(std::distance(begin(entries), end(entries)), steps.size());
        for (const int64_t step : steps) {
            const Checkpoint checkpoint(step_path(run, step));
            EXPECT_EQ(checkpoint.faults(), std::vector<std::string>());
        }
    }

    Random random_{9};
    ScratchFolder folder_;
    Sample sample_;
};

TEST_F(FullDisk, FileSizeLimitLeavesEarlierStepsIntact) {
    const fs::path run = folder_ / "run";
    ASSERT_EQ(save(run, 1), "");
    const auto total_bytes = fs::file_size(step_path(run, 1) / shard_name(0, 2)) +
                             fs::file_size(step_path(run, 1) / shard_name(1, 2));
    for (rlim_t limit = 0; limit < total_bytes; limit += 1 + below(random_, 3000)) {
        std::string error;
        {
            const FileSizeLimit full(limit);
            error = save(run, 2);
        }
        if (error.empty()) break;
        expect_message(error, {"step-00000002.partial", "File too large; the limit on a file's size"});
        expect_steps(run, {1});
    }
    EXPECT_EQ(save(run, 2), "");
    expect_steps(run, {1, 2});
}

TEST_F(FullDisk, FullFileSystemLeavesEarlierStepsIntact) {
    const SmallDisk disk(folder_ / "disk", "size=256k");
    if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a file system";
    const fs::path run = folder_ / "disk/run";
    ASSERT_EQ(save(run, 1), "");
    ASSERT_EQ(save(run, 2), "");
    for (int64_t step = 3; step < 6; ++step) {
        expect_message(save(run, step), {"step-0000000", ".partial", "No space left on device; make room"});
        expect_steps(run, {1, 2});
    }
    remove_old_steps(run, {.keep_latest = 1});
    EXPECT_EQ(save(run, 6), "");
    expect_steps(run, {2, 6});
}

TEST_F(FullDisk, TheErrorSaysHowMuchIsFree) {
    const SmallDisk disk(folder_ / "disk", "size=64k");
    if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a file system";
    const RawFile file = RawFile::create(folder_ / "disk/x");
    const std::vector<std::byte> bytes(100'000);
    EXPECT_ERROR(file.write_at(0, bytes), RunError, "disk/x: No space left on device; make room",
                 "34464 bytes were to be written at byte 65536, and 0 are free");
}

// The file system has room for all bytes, but no free inodes.
TEST_F(FullDisk, MissingInodesLeaveEarlierStepsIntact) {
    const SmallDisk disk(folder_ / "disk", "nr_inodes=8");
    if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a file system";
    const fs::path run = folder_ / "disk/run";
    ASSERT_EQ(save(run, 1), "");
    for (int64_t step = 2; step < 4; ++step) {
        EXPECT_NE(save(run, step), "");
        expect_steps(run, {1});
    }
}

}  // namespace
}  // namespace argosy::checkpoint
