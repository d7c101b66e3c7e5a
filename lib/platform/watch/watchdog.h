// Ends the job when ranks wait for each other longer than the timeout, and names the missing ranks. The
// watchdog covers operations between GPUs, which no host code can time out (GpuState), and waits of the host,
// which enter themselves in waits(). Before the watchdogs have connected, a BoundedCall (mpi/start_up.h)
// bounds each wait.
//
// A thread of each rank reads the waits under way. If one is late, rank 0's watchdog asks the watchdogs of
// all ranks for their reports, over TCP connections outside of MPI and NCCL (WatchTree), and works out
// which ranks are missing (find_root_cause). In a job with GPUs, rank 0's watchdog prints the only message,
// and every rank aborts NCCL and exits with the watchdog's exit code. In a job without GPUs, the waits of all
// ranks fail, and the error of one rank ends the job. If rank 0's watchdog does not answer, the other ranks
// report one after the other, because the first rank that exits takes the job down.
//
// Once the missing ranks are known, rank 0 asks all ranks for their last operations (FlightRecorder), and
// finds the first operation on which ranks differ. At the same time, each rank writes its operations to a
// file. All this ends within seconds, whatever the file system does.
//
// A rank may wait for the file system (FileWait in base/time_limit.h) while the others wait for it. It is not
// missing then, and the waits of the others are not late until its wait exceeds the limit of the file system.
// The message then names the wait, and no missing rank, because storage that all nodes share is at fault.
//
// A rank that leaves in order, or after an error that it prints itself, sends a notice first. In a job with
// GPUs, a rank whose connection closes without notice is reported as missing at once.
//
// A second thread queries CUDA and NCCL, and stores the answers for the first one, because a query may block
// for ever if a GPU hangs. Time in which the rank itself stood still (SIGSTOP, a suspended job) does not
// count as waiting time.
#pragma once

#include <filesystem>
#include <memory>
#include <thread>

#include "mpi/comm.h"
#include "watch/flight_recorder.h"
#include "watch/gpu_state.h"
#include "watch/host_waits.h"

namespace argosy::watch {

class Watchdog {
  public:
    /// The limit of waits for the file system. Servers of a shared file system take minutes to replace a
    /// failed one.
    static constexpr WaitLimit kStorageLimit = {900, "comm.storage_timeout_seconds"};
    /// The maximum number of ranks that connect to one rank. Tests have trees of few ranks.
    static constexpr int kFanOut = 128;

    /// COLLECTIVE over `world`. Until leave(), watches the waits of the host and, unless `gpu` is null, the
    /// launch queues and lanes of `gpu`, on this thread's device, and waits for the file system (FileWait),
    /// which have a limit of their own. On a hang, each rank writes a file to `flight_folder`, unless that is
    /// empty.
    Watchdog(const mpi::Comm& world, std::shared_ptr<GpuState> gpu, WaitLimit limit,
             std::filesystem::path flight_folder = {}, WaitLimit storage_limit = kStorageLimit,
             int fan_out = kFanOut);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;

    HostWaits& waits() const;
    FlightRecorder& flight() const;

    /// The limit of operations between GPUs, and of host waits that have no limit of their own.
    WaitLimit limit() const;
    /// Changes the limit of operations between GPUs, and of host waits that begin from now on.
    void set_limit(WaitLimit limit);

    /// Notifies the other ranks that this rank leaves in order, and stops watching. Returns once the notice
    /// is sent, or after ten seconds. Only the first call has an effect. If other ranks reach rank 0 through
    /// this one, a thread serves them until they have left, too, or this process ends.
    void leave();

  private:
    struct State;
    class Protocol;
    /// The work of message_thread_.
    static void exchange_messages(std::shared_ptr<State> state);

    std::shared_ptr<State> state_;  // shared with the threads; a thread that hangs outlives this object
    std::thread gpu_thread_, message_thread_;
};

}  // namespace argosy::watch
