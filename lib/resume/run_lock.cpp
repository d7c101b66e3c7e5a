#include "resume/run_lock.h"

#include <unistd.h>

#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "resume/joint_work.h"

namespace argosy::resume {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kBetweenLooks{200};
constexpr int kMaxAttempts = 100;  // to open the file, because other runs may remove its folder
constexpr std::chrono::milliseconds kBetweenAttempts{1};

/// The start of the text that a job writes to its lock file; empty outside Slurm.
std::string job_name(const Environment& environment) {
    return environment.slurm_job_id.empty() ? "" : fmt::format("job {}, ", environment.slurm_job_id);
}

/// Makes the folder and its parents. True if the folder did not exist before.
bool make_folder(const fs::path& folder, std::error_code& error) {
    if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
    return !error && fs::create_directory(folder, error);
}

/// Makes the folder and opens the lock file in it. Tries again if another run, at its end, removes the folder
/// before the file is opened. Sets `made_folder` if the folder did not exist before.
FileLock open_lock(const fs::path& path, bool& made_folder) {
    for (int attempt = 1;; ++attempt) {
        std::error_code error;
        if (make_folder(path.parent_path(), error)) made_folder = true;
        try {
            return FileLock(path);
        } catch (const std::system_error& failure) {
            if (failure.code() == std::errc::no_such_file_or_directory && attempt < kMaxAttempts) {
                std::this_thread::sleep_for(kBetweenAttempts);
                continue;
            }
            if (made_folder) rmdir(path.parent_path().c_str());
            const std::error_code reason = error ? error : failure.code();
            const fs::path folder = path.parent_path();
            std::error_code ignored;
            const bool is_file = fs::exists(folder, ignored) && !fs::is_directory(folder, ignored);
            throw PathError(reason.value(),
                            "cannot make '{}': {}. Set job.dump_folder to a folder that can be written",
                            path.string(), is_file ? folder.string() + " is a file" : reason.message());
        }
    }
}

/// Sleeps for a moment if the holder is an earlier start of this job. Throws UserError if the holder is
/// another job, and RunError if the deadline has passed.
void wait_for(const std::string& holder, const fs::path& path, const Environment& environment,
              double deadline) {
    const std::string own_job = job_name(environment), folder = path.parent_path().string();
    if (own_job.empty() || !holder.starts_with(own_job)) {
        throw UserError(
            "job.dump_folder = {} is in use by another run ({}); two runs would overwrite each other's "
            "steps. Wait for its end, or set job.dump_folder to another folder",
            folder, holder.empty() ? "which has just begun" : holder);
    }
    if (seconds_now() < deadline) return std::this_thread::sleep_for(kBetweenLooks);
    throw RunError(
        "job.dump_folder = {} is still locked by an earlier start of this job ({}), which should have ended "
        "by now: its disk or its node hangs. End that process, then start the job again",
        folder, holder);
}

FileLock take(const fs::path& path, const Environment& environment, double patience_seconds,
              bool& made_folder) {
    const double deadline = seconds_now() + patience_seconds;
    for (bool said = false;;) {
        FileLock file = open_lock(path, made_folder);
        const FileLock::Attempt attempt = file.try_to_lock(job_name(environment) + this_process());
        if (attempt == FileLock::Attempt::Taken) return file;
        if (attempt == FileLock::Attempt::NoLocks) {
            spdlog::warn(
                "'{}' is on a file system without locks: nothing prevents a second job from writing here",
                path.string());
            return file;
        }
        if (attempt == FileLock::Attempt::Gone) continue;
        const std::string holder = file.holder();
        wait_for(holder, path, environment, deadline);
        if (!said) spdlog::info("waiting until an earlier start of this job ends: {}", holder);
        said = true;
    }
}

}  // namespace

RunLock::RunLock(const config::JobConfig& config, const Environment& environment,
                 comm::Communicator& control) {
    holder_ = job_name(environment) + this_process();
    const double patience_seconds = config.comm.train_timeout_seconds + kSecondsToEnd;
    JointWork work(control, patience_seconds + config.comm.init_timeout_seconds);
    work.run([&] {
        if (control.rank() != 0) return;
        file_ =
            take(fs::path(config.job.dump_folder) / "run.lock", environment, patience_seconds, made_folder_);
    });
}

void RunLock::check() {
    if (!file_ || !file_->is_gone()) return;
    const fs::path path = file_->path();
    const std::string folder = path.parent_path().string();
    for (;;) {
        file_.emplace(open_lock(path, made_folder_));
        const FileLock::Attempt attempt = file_->try_to_lock(holder_);
        if (attempt == FileLock::Attempt::Gone) continue;
        if (attempt != FileLock::Attempt::Held) break;
        const std::string holder = file_->holder();
        file_.reset();
        throw Error(
            ExitCode::BadInput, Reach::OneRank,
            fmt::format("job.dump_folder = {} was removed during this run, and another run ({}) now uses it. "
                        "This run ends, because two runs would overwrite each other's steps",
                        folder, holder));
    }
    spdlog::error(
        "'{}' was removed during this run. The files that were in {} may be lost; the run goes on and makes "
        "new ones",
        path.string(), folder);
}

RunLock::~RunLock() {
    if (!file_ || file_->is_gone()) return;  // another run may have a lock of this name
    file_->remove();
    if (made_folder_) rmdir(file_->path().parent_path().c_str());  // fails if the folder is not empty
}

}  // namespace argosy::resume
