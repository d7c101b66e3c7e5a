#include "train/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "train/joint_work.h"

namespace argosy::train {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kBetweenLooks{200};
constexpr int kMostAttempts = 100;  // to open what others remove meanwhile
constexpr std::chrono::milliseconds kBetweenAttempts{1};

/// The beginning of what a job writes into its lock.
std::string job_name(const Environment& environment) {
    return environment.slurm_job_id.empty() ? "" : fmt::format("job {}, ", environment.slurm_job_id);
}

std::string description(const Environment& environment) {
    char host[HOST_NAME_MAX + 1] = {};
    gethostname(host, HOST_NAME_MAX);
    return fmt::format("{}process {} on {}", job_name(environment), getpid(), host);
}

/// Whether it was not there and was made, with those above it.
bool make_folder(const fs::path& folder, std::error_code& error) {
    if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
    return !error && fs::create_directory(folder, error);
}

/// Tries again where another run, at its end, takes the folder away between its making and the opening.
/// `made_folder` becomes true where this made it.
int open_lock(const fs::path& path, bool& made_folder) {
    constexpr mode_t kReadableByAll = 0644;
    for (int attempt = 1;; ++attempt) {
        std::error_code error;
        if (make_folder(path.parent_path(), error)) made_folder = true;
        const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kReadableByAll);
        if (file >= 0) return file;
        const int reason = errno;
        if (reason == ENOENT && attempt < kMostAttempts) {
            std::this_thread::sleep_for(kBetweenAttempts);
            continue;
        }
        if (made_folder) rmdir(path.parent_path().c_str());
        throw RunError("cannot make '{}': {}. Set job.dump_folder to a folder that can be written",
                       path.string(), error ? error.message() : std::strerror(reason));
    }
}

std::string content(int file) {
    char text[512] = {};
    const ssize_t size = pread(file, text, sizeof text, 0);
    return {text, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

void write_content(int file, const std::string& text) {
    const bool written = ftruncate(file, 0) == 0 &&
                         pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
    if (!written) spdlog::warn("the run's lock will not say who holds it: {}", std::strerror(errno));
}

/// Whether to wait for the holder. UserError where it is another job; RunError where it is this one, and what
/// is left of it does not end.
void wait_for(const std::string& holder, const fs::path& path, const Environment& environment,
              double deadline) {
    const std::string own_job = job_name(environment), folder = path.parent_path().string();
    if (own_job.empty() || !holder.starts_with(own_job)) {
        throw UserError(
            "job.dump_folder = {} is in use by another run ({}); two would write over each other's steps. "
            "Wait for its end, or set job.dump_folder to another folder",
            folder, holder.empty() ? "which has just begun" : holder);
    }
    if (seconds_now() < deadline) return std::this_thread::sleep_for(kBetweenLooks);
    throw RunError(
        "job.dump_folder = {} is still held by what is left of an earlier start of this very job ({}), which "
        "should have ended by now: its disk or its node hangs. End that process, then start the job again",
        folder, holder);
}

/// The file, open and locked.
int take(const fs::path& path, const Environment& environment, double patience_seconds, bool& made_folder) {
    const double deadline = seconds_now() + patience_seconds;
    for (bool said = false;;) {
        const int file = open_lock(path, made_folder);
        const LockAttempt attempt = try_to_lock(file, path);
        const std::string holder = content(file);
        if (attempt == LockAttempt::NoLocks) {
            spdlog::warn(
                "'{}' lies on a file system without locks: nothing keeps a second job from this folder",
                path.string());
        }
        if (attempt == LockAttempt::Taken || attempt == LockAttempt::NoLocks) {
            write_content(file, description(environment));
            return file;
        }
        close(file);
        if (attempt == LockAttempt::Gone) continue;
        wait_for(holder, path, environment, deadline);
        if (!said) spdlog::info("waiting for the end of what is left of this job: {}", holder);
        said = true;
    }
}

}  // namespace

RunLock::RunLock(const config::JobConfig& config, const Environment& environment, comm::Communicator& control)
    : path_(fs::path(config.job.dump_folder) / "run.lock") {
    JointWork work(control);
    work.run([&] {
        if (control.rank() != 0) return;
        file_ = take(path_, environment, config.comm.train_timeout_seconds + kSecondsToEnd, made_folder_);
    });
}

RunLock::~RunLock() {
    if (file_ < 0) return;
    std::error_code ignored;
    fs::remove(path_, ignored);
    if (made_folder_) rmdir(path_.parent_path().c_str());  // only where it is empty
    close(file_);
}

}  // namespace argosy::train
