// What has to be on disk before a name says that it is. The system's calls are caught here, in order: a
// machine that loses its power cannot be had in a test.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "checkpoint/partial_folder.h"
#include "checkpoint/sample.h"
#include "scratch_folder.h"

namespace {

std::vector<std::string> calls;  // "write PATH", "sync PATH", "rename FROM TO", "exchange FROM TO"

std::string path_of(int descriptor) {
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string();
}

}  // namespace

// In place of the C library's, for everything in this executable.
extern "C" int fsync(int descriptor) {
    calls.push_back("sync " + path_of(descriptor));
    return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
extern "C" ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
    calls.push_back("write " + path_of(descriptor));
    return ::syscall(SYS_pwrite64, descriptor, bytes, count, offset);
}
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
    calls.push_back(std::string(flags & RENAME_EXCHANGE ? "exchange " : "rename ") + from + " " + to);
    return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Where a call stands in the record; the last one of its kind. Fails the test where there is none.
ptrdiff_t last(const std::string& call) {
    const auto found = std::find(calls.rbegin(), calls.rend(), call);
    EXPECT_NE(found, calls.rend()) << call;
    return calls.rend() - found;
}

class Durable : public ::testing::Test {
  protected:
    void save() {
        calls.clear();
        write_step(random_, run_, sample_, 2, 5);
    }
    /// Files, their folder, the rename, and the folder around: each on disk before the next.
    void expect_order(const std::string& rename) {
        const fs::path partial = run_ / "step-00000005.partial";
        const ptrdiff_t renamed =
            last(rename + " " + partial.string() + " " + (run_ / "step-00000005").string());
        const ptrdiff_t folder = last("sync " + partial.string());
        for (const std::string& name : {shard_name(0, 2), shard_name(1, 2), std::string("checkpoint.h5")}) {
            const std::string file = (partial / name).string();
            EXPECT_LT(last("write " + file), last("sync " + file));
            EXPECT_LT(last("sync " + file), folder);
        }
        EXPECT_LT(folder, renamed);
        EXPECT_LT(renamed, last("sync " + run_.string()));
    }

    Random random_{4};
    ScratchFolder folder_;
    fs::path run_ = folder_ / "outputs/run";
    Sample sample_ = random_sample(random_, 5);
};

TEST_F(Durable, AStepIsBeforeItHasItsName) {
    save();
    expect_order("rename");
    EXPECT_LT(last("sync " + (folder_ / "outputs").string()),
              last("sync " + run_.string()));  // the folders that it made
    save();
    expect_order("exchange");
}

TEST_F(Durable, APartialFolderIsBeforeItHasItsName) {
    calls.clear();
    PartialFolder made(folder_ / "export");
    const std::string path = made.path().string();
    fs::create_directories(made.path() / "deep");
    write_file(made.path() / "deep/x", "1");
    sync_tree(made.path());
    publish(made.path(), folder_ / "export", Replace::No);
    const ptrdiff_t renamed = last("rename " + path + " " + (folder_ / "export").string());
    EXPECT_LT(last("sync " + path + "/deep/x"), last("sync " + path + "/deep"));
    EXPECT_LT(last("sync " + path + "/deep"), last("sync " + path));
    EXPECT_LT(last("sync " + path), renamed);
    EXPECT_EQ(calls.back(), "sync " + fs::path(path).parent_path().string());
}

/// Else a machine that loses its power may have the name back, and not all of the contents.
TEST_F(Durable, AStepHasLostItsNameBeforeItsContents) {
    save();
    calls.clear();
    remove_quietly(run_ / "step-00000005");
    EXPECT_EQ(calls, std::vector<std::string>{"sync " + run_.string()});
}

}  // namespace
}  // namespace argosy::checkpoint
