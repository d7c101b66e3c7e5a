// Some calls of MPI wait for other ranks, for ever. While one of these lives, the process ends with the
// watchdog's code, and one message, once that takes longer than ARGOSY_START_SECONDS.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/environment.h"

namespace argosy::mpi {

/// Who did not come.
struct Absence {
    std::string words = "a rank did not come to it";  // the end of the message
    bool first_speaks = false;                        // another rank has this message, too, and the turn
};

class BlockingCall {
  public:
    using Who = std::function<Absence()>;

    /// `what` is called, for the message; `who` did not come to it.
    explicit BlockingCall(
        std::string what, Who who = [] { return Absence{}; });
    /// The call has returned.
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
