// Whoever waits on a GPU waits there, not on the host: so two threads of each rank look at what is under way.
// A launch is late when the GPU, or the host's call, has been at it for longer than the limit. Rank 0's
// watchdog then asks all the others, by a way of their own (WatchStar), works out who is missing, and prints
// the one message; then every rank breaks off NCCL and ends with the watchdog's exit code. A rank whose
// connection goes without a word is named at once; one that leaves in order says so, and so do errors, which
// print their own message.
//
// One thread asks CUDA and NCCL, which may keep it for ever where a GPU hangs, and writes down what it has
// seen; the other one talks and decides. A rank that stood still itself (SIGSTOP, a suspended job) has not
// waited in that time.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/gpu_side.h"
#include "comm/verdict.h"
#include "comm/watch_star.h"
#include "mpi/comm.h"

namespace argosy::comm {

class Watchdog {
  public:
    /// COLLECTIVE over `world`. It looks at the lines and lanes of `gpu`, on this thread's device.
    Watchdog(const mpi::Comm& world, std::shared_ptr<GpuSide> gpu, double timeout_seconds);
    /// This rank leaves in order.
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;

  private:
    /// What the thread that asks CUDA has seen, and when.
    struct Sight {
        WatchReport report;
        double at_seconds = 0;
    };
    class Talk;

    void look(int device);
    void look_once(double elapsed_seconds);
    bool sleep(double seconds);
    Sight sight() const;
    [[noreturn]] void end_process();

    const std::shared_ptr<GpuSide> gpu_;
    const double timeout_seconds_;
    WatchStar star_;
    mutable std::mutex mutex_;
    std::condition_variable leaving_changed_;
    bool leaving_ = false;
    Sight sight_;
    std::thread looks_, talks_;
};

}  // namespace argosy::comm
