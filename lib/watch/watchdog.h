// Ends the job when an operation between GPUs does not end. An operation on a GPU waits for its peers on the
// GPU, where no host code can time out, so two threads of each rank watch the operations under way. An
// operation, in a graph or outside, is late when the GPU, or the host's launching call, has spent more than
// the timeout on it. Rank 0's watchdog then asks the watchdogs of all other ranks over separate TCP
// connections (WatchConnections), works out which ranks are missing, and prints the only message. Every rank
// that rank 0 reaches then aborts NCCL and exits with the watchdog's exit code. If rank 0 itself does not
// answer, the other ranks report one after the other, because the first rank that exits takes the job down. A
// rank whose connection closes without notice is reported as missing at once; a rank that leaves in order, or
// after an error that it prints itself, sends a notice first.
//
// One thread queries CUDA and NCCL, which may block it for ever if a GPU hangs, and stores what it has seen.
// The other thread exchanges messages and decides. Time in which the rank itself stood still (SIGSTOP, a
// suspended job) does not count as waiting time.
#pragma once

#include <memory>
#include <thread>

#include "mpi/comm.h"
#include "watch/gpu_side.h"

namespace argosy::watch {

class Watchdog {
  public:
    /// COLLECTIVE over `world`. Watches the launch queues and lanes of `gpu`, on this thread's device, until
    /// leave().
    Watchdog(const mpi::Comm& world, std::shared_ptr<GpuSide> gpu, double timeout_seconds);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;

    /// Notifies the other ranks that this rank leaves in order, and stops watching. Returns once the notice
    /// is sent, or after a second. Only the first call has an effect.
    void leave();

  private:
    struct State;
    class Talk;

    std::shared_ptr<State> state_;  // shared with the threads: one that hangs in CUDA outlives this object
    std::thread looks_, talks_;
};

}  // namespace argosy::watch
