#include "resume/run_lock.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/time_limit.h"
#include "resume/joint_work.h"
#include "resume/restore.h"

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

}  // namespace

/// The lock of one folder.
class RunLock::Folder {
  public:
    /// `setting` names the folder in messages. Waits at most `patience_seconds` for an earlier start of this
    /// job.
    Folder(std::string setting, const fs::path& folder, const Environment& environment,
           double patience_seconds);
    Folder(const Folder&) = delete;
    ~Folder();
    void check();

  private:
    FileLock open();
    void wait_for(const std::string& holder, double deadline) const;

    std::string setting_;
    fs::path path_;             // of the lock file
    std::string job_, holder_;  // job_name() and the text for the file
    bool made_folder_ = false;
    std::optional<FileLock> file_;
};

/// Makes the folder and opens the lock file in it. Tries again if another run, at its end, removes the folder
/// before the file is opened.
FileLock RunLock::Folder::open() {
    const fs::path folder = path_.parent_path();
    for (int attempt = 1;; ++attempt) {
        std::error_code error;
        if (make_folder(folder, error)) made_folder_ = true;
        try {
            return FileLock(path_);
        } catch (const std::system_error& failure) {
            if (failure.code() == std::errc::no_such_file_or_directory && attempt < kMaxAttempts) {
                std::this_thread::sleep_for(kBetweenAttempts);
                continue;
            }
            if (made_folder_) rmdir(folder.c_str());
            const std::error_code reason = error ? error : failure.code();
            std::error_code ignored;
            const bool is_file = fs::exists(folder, ignored) && !fs::is_directory(folder, ignored);
            throw PathError(reason.value(), "cannot make '{}': {}. Set {} to a folder that can be written",
                            path_.string(), is_file ? folder.string() + " is a file" : reason.message(),
                            setting_);
        }
    }
}

/// Sleeps for a moment if the holder is an earlier start of this job. Throws UserError if the holder is
/// another job, and RunError if the deadline has passed.
void RunLock::Folder::wait_for(const std::string& holder, double deadline) const {
    const std::string folder = path_.parent_path().string();
    if (job_.empty() || !holder.starts_with(job_)) {
        throw UserError(
            "{} = {} is in use by another run ({}); two runs would overwrite each other's "
            "steps. Wait for its end, or set {} to another folder",
            setting_, folder, holder.empty() ? "which has just begun" : holder, setting_);
    }
    if (seconds_now() < deadline) return std::this_thread::sleep_for(kBetweenLooks);
    throw RunError(
        "{} = {} is still locked by an earlier start of this job ({}), which should have ended "
        "by now: its disk or its node hangs. End that process, then start the job again",
        setting_, folder, holder);
}

RunLock::Folder::Folder(std::string setting, const fs::path& folder, const Environment& environment,
                        double patience_seconds)
    : setting_(std::move(setting)),
      path_(folder / "run.lock"),
      job_(job_name(environment)),
      holder_(job_ + this_process()) {
    const double deadline = seconds_now() + patience_seconds;
    for (bool said = false;;) {
        file_.emplace(open());
        const FileLock::Attempt attempt = file_->try_to_lock(holder_);
        if (attempt == FileLock::Attempt::Taken) return;
        if (attempt == FileLock::Attempt::NoLocks) {
            spdlog::warn(
                "'{}' is on a file system without locks: nothing prevents a second job from writing here",
                path_.string());
            return;
        }
        if (attempt == FileLock::Attempt::Gone) continue;
        const std::string holder = file_->holder();
        wait_for(holder, deadline);
        if (!said) spdlog::info("waiting until an earlier start of this job ends: {}", holder);
        said = true;
    }
}

void RunLock::Folder::check() {
    if (!file_ || !file_->is_gone()) return;
    const std::string folder = path_.parent_path().string();
    for (;;) {
        file_.emplace(open());
        const FileLock::Attempt attempt = file_->try_to_lock(holder_);
        if (attempt == FileLock::Attempt::Gone) continue;
        if (attempt != FileLock::Attempt::Held) break;
        const std::string holder = file_->holder();
        file_.reset();
        throw Error(ExitCode::BadInput, Reach::OneRank,
                    fmt::format("{} = {} was removed during this run, and another run ({}) now uses it. "
                                "This run ends, because two runs would overwrite each other's steps",
                                setting_, folder, holder));
    }
    spdlog::error(
        "'{}' was removed during this run. The files that were in {} may be lost; the run goes on and makes "
        "new ones",
        path_.string(), folder);
}

RunLock::Folder::~Folder() {
    if (!file_ || file_->is_gone()) return;  // another run may have a lock of this name
    file_->remove();
    if (made_folder_) rmdir(path_.parent_path().c_str());  // fails if the folder is not empty
}

RunLock::RunLock(const config::JobConfig& config, const Environment& environment,
                 comm::Communicator& control) {
    const double patience_seconds = config.comm.train_timeout_seconds + kSecondsToEnd;
    JointWork work(control, patience_seconds + config.comm.storage_timeout_seconds);
    work.run([&] {
        if (control.rank() != 0) return;
        const fs::path dump = config.job.dump_folder, steps = steps_folder(config);
        dump_ = std::make_unique<Folder>("job.dump_folder", dump, environment, patience_seconds);
        if (!config.checkpoint.saves() || fs::weakly_canonical(steps) == fs::weakly_canonical(dump)) return;
        steps_ = std::make_unique<Folder>("checkpoint.folder", steps, environment, patience_seconds);
    });
}

void RunLock::check() {
    const FileWait wait("checking that job.dump_folder has not been removed");
    if (dump_) dump_->check();
}

RunLock::~RunLock() = default;

}  // namespace argosy::resume
