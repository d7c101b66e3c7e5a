// A timeout for calls that wait for other ranks for ever, such as MPI_Init. If a BlockingCall exists for
// longer than ARGOSY_START_SECONDS, its thread prints one message and ends the process with the watchdog's
// exit code.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/environment.h"

namespace argosy::mpi {

/// The missing ranks.
struct MissingRanks {
    std::string words = "a rank did not come to it";  // the end of the message
    bool first_speaks = false;                        // another rank has the same message and prints it first
};

class BlockingCall {
  public:
    using Who = std::function<MissingRanks()>;

    /// `what` names the call in the message; `who` returns the ranks that did not come to it.
    explicit BlockingCall(
        std::string what, Who who = [] { return MissingRanks{}; });
    /// The call has returned: the timeout is off.
    ~BlockingCall();
    BlockingCall(const BlockingCall&) = delete;

  private:
    void watch(const Environment::Start& start);

    std::string what_;
    Who who_;
    std::mutex mutex_;
    std::condition_variable done_changed_;
    bool done_ = false;
    std::thread thread_;
};

}  // namespace argosy::mpi
