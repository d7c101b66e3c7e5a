// Some calls of MPI wait for other ranks, for ever. While one of these lives, the process ends with the
// watchdog's code, and one message, once that takes longer than ARGOSY_START_SECONDS.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/environment.h"

namespace argosy::mpi {

class BlockingCall {
  public:
    /// Who did not come to it, as the end of the message; none: another rank speaks for this one.
    using Who = std::function<std::optional<std::string>()>;

    /// `what` is called, for the message.
    explicit BlockingCall(
        std::string what, Who who = [] { return "a rank did not come to it"; });
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
