// Timeouts for the start of a program, before the watchdogs of the ranks have connected (watch/watchdog.h)
// and can find out who is late. MPI_Init itself can only be watched through the file system: no rank knows
// another's address yet. Each rank therefore leaves a file with its number in a folder that all ranks see,
// and the ranks that wait name the numbers that are not there.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/environment.h"
#include "mpi/comm.h"

namespace argosy::mpi {

/// The ranks that have not reached MPI_Init.
struct MissingRanks {
    std::string words = "a rank did not come to it";  // the end of the message
    bool first_reports = false;  // the lowest rank there has the same message and prints it first
};

/// Makes the file with this rank's number, if a folder is set.
void record_arrival(const Environment::Start& start);

/// "missing: rank 3, 5". Without a folder, or if no file is missing, the text only says that a rank is
/// missing.
MissingRanks missing_at_start(const Environment::Start& start);

/// A timeout for a call that waits for other ranks for ever, such as MPI_Init. If the object exists for
/// longer than ARGOSY_START_SECONDS, its thread prints one message and ends the process with the watchdog's
/// exit code.
class BoundedCall {
  public:
    using FindMissing = std::function<MissingRanks()>;

    /// `what` names the call in the message.
    explicit BoundedCall(
        std::string what, FindMissing find_missing = [] { return MissingRanks{}; });
    /// The call has returned: the timeout is off.
    ~BoundedCall();
    BoundedCall(const BoundedCall&) = delete;

  private:
    void watch(const Environment::Start& start);

    std::string what_;
    FindMissing find_missing_;
    std::mutex mutex_;
    std::condition_variable done_changed_;
    bool done_ = false;
    std::thread thread_;
};

/// COLLECTIVE, in a BoundedCall: gathers `own` of every rank into `all`, in the order of ranks. REQUIRES:
/// `own` has the same size on every rank. `what` names the data in messages.
void all_gather_bytes_at_start(const Comm& ranks, void* all, std::span<const std::byte> own,
                               const std::string& what);

/// COLLECTIVE: returns the items of all ranks, those of rank 0 first. REQUIRES: every rank passes the same
/// number of items.
template <class Item>
std::vector<Item> all_gather_at_start(const Comm& ranks, std::span<const Item> own, const std::string& what) {
    static_assert(std::is_trivially_copyable_v<Item>);
    std::vector<Item> all(own.size() * static_cast<size_t>(ranks.size()));
    all_gather_bytes_at_start(ranks, all.data(), std::as_bytes(own), what);
    return all;
}

}  // namespace argosy::mpi
