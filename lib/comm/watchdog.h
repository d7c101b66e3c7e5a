// Whoever waits on a GPU waits there, not on the host: so two threads of each rank look at what is under way.
// An operation, outside of graphs or within, is late when the GPU, or the host's call, has been at it for
// longer than the limit. Rank 0's watchdog then asks all the others, by a way of their own (WatchStar), works
// out who is missing, and prints the one message; then every rank that it reaches breaks off NCCL and ends
// with the watchdog's exit code. Where rank 0 is the one that does not answer the others speak, each in its
// turn, since the first that ends takes the job down. A rank whose connection goes without a word is named at
// once; one that leaves in order, or with an error of its own, which it prints itself, says so before.
//
// One thread asks CUDA and NCCL, which may keep it for ever where a GPU hangs, and writes down what it has
// seen; the other one talks and decides. A rank that stood still itself (SIGSTOP, a suspended job) has not
// waited in that time.
#pragma once

#include <memory>
#include <thread>

#include "comm/gpu_side.h"
#include "mpi/comm.h"

namespace argosy::comm {

class Watchdog {
  public:
    /// COLLECTIVE over `world`. It looks at the lines and lanes of `gpu`, on this thread's device.
    Watchdog(const mpi::Comm& world, std::shared_ptr<GpuSide> gpu, double timeout_seconds);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;

    /// This rank leaves in order, and says so before this returns, or a second is over. Nothing is
    /// watched from then on. The first time alone does anything.
    void leave();

  private:
    struct State;
    class Talk;

    std::shared_ptr<State> state_;  // a thread that CUDA does not let go has it for itself in the end
    std::thread looks_, talks_;
};

}  // namespace argosy::comm
