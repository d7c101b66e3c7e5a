// The state that the two threads of a Watchdog share, and the loop of the thread that queries CUDA and NCCL.
// Only the sources of Watchdog use this header.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "cuda/device.h"
#include "watch/flight_recorder.h"
#include "watch/host_waits.h"
#include "watch/watch_tree.h"
#include "watch/watchdog.h"

namespace argosy::watch {

/// The pause of each thread of the watchdog between two polls.
double seconds_between_polls(double timeout_seconds);

/// Identifies a hang: the time at which rank 0, or a rank that reports alone, has found it.
std::string time_of_hang();

/// How long the watchdogs of `num_ranks` ranks wait for each other, in seconds.
struct Bounds {
    Bounds(double timeout_seconds, int num_ranks);

    /// Ranks answer rank 0 within this time, round trip included.
    double answer;
    /// Rank 0 asks all ranks for their reports as soon as one rank says that it is late. If that rank then
    /// hears nothing for this long, it treats rank 0 as missing. Each question of rank 0 starts that time
    /// again, so a rank 0 that only takes long to collect reports does not count as missing.
    double silence;
    /// Rank 0 waits this long at most for the operations of all ranks, and then for their files.
    double comparison;
    /// The most time from an error of NCCL until rank 0's watchdog ends the processes of all ranks.
    double root_cause;
};

struct Watchdog::State {
    /// The last report of the thread that queries CUDA, and its time.
    struct GpuReport {
        RankReport report;
        double at_seconds = 0;
    };

    State(const mpi::Comm& world, std::shared_ptr<GpuState> its_gpu, WaitLimit its_limit,
          std::filesystem::path flight_folder, WaitLimit storage_limit, int fan_out)
        : gpu(std::move(its_gpu)),
          device(gpu ? cuda::current_device() : 0),
          waits(storage_limit),
          flight(world.rank()),
          flight_file(std::move(flight_folder), world.rank()),
          connections(std::make_shared<WatchTree>(world, fan_out)),
          limit_(its_limit) {}

    /// The loop of the thread that queries CUDA and NCCL; poll_gpu() is one pass of the loop.
    void poll_gpu_until_leaving();
    RankReport poll_gpu(double elapsed_seconds) const;
    [[noreturn]] void end_process() const;

    /// Sleeps. Returns false once this rank leaves, even before `seconds` have passed.
    bool sleep(double seconds) {
        std::unique_lock lock(mutex);
        return !changed.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return leaving; });
    }
    bool is_leaving() const {
        const std::lock_guard lock(mutex);
        return leaving;
    }
    GpuReport last_gpu_report() const {
        const std::lock_guard lock(mutex);
        return gpu_report;
    }
    WaitLimit limit() const {
        const std::lock_guard lock(mutex);
        return limit_;
    }
    void set_limit(WaitLimit limit) {
        const std::lock_guard lock(mutex);
        limit_ = limit;
    }
    void store(RankReport report) {
        const std::lock_guard lock(mutex);
        gpu_report = {std::move(report), seconds_now()};
    }
    void set(bool& flag) {
        const std::lock_guard lock(mutex);
        flag = true;
        changed.notify_all();
    }
    /// Waits until `flag` is set, for at most `seconds`. Returns whether it is set.
    bool wait_for(const bool& flag, double seconds) {
        std::unique_lock lock(mutex);
        return changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return flag; });
    }

    const std::shared_ptr<GpuState> gpu;  // null: the rank has no operations between GPUs
    const int device;                     // of the rank's GPU
    HostWaits waits;
    FlightRecorder flight;
    FlightFile flight_file;                        // only the thread that exchanges messages uses it
    const std::shared_ptr<WatchTree> connections;  // of the thread that exchanges messages, except wake()
    mutable std::mutex mutex;
    std::condition_variable changed;
    bool leaving = false, gpu_thread_ended = false, notice_sent = false;
    GpuReport gpu_report;

  private:
    WaitLimit limit_;
};

}  // namespace argosy::watch
