// MPI_Init waits for all ranks, for ever. While one of these lives, the process ends with the watchdog's code
// once that took too long, and says which ranks never came to it, where a folder is shared for that.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/environment.h"

namespace argosy::mpi {

class StartWatch {
  public:
    /// `program`: its name, for the message. Leaves this rank's number in the folder of arrivals.
    StartWatch(const char* program, const Environment::Start& start);
    /// MPI is up.
    ~StartWatch();
    StartWatch(const StartWatch&) = delete;

  private:
    void watch();
    void give_up() const;

    const char* program_;
    Environment::Start start_;
    std::mutex mutex_;
    std::condition_variable up_changed_;
    bool up_ = false;
    std::thread thread_;
};

}  // namespace argosy::mpi
