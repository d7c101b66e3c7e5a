// Timeouts for the start and the end of a program, when the ranks' watchdogs (watch/watchdog.h) are not
// connected. During MPI_Init no rank knows another rank's address, so ranks can only exchange news through
// the file system. Each node therefore has a file, named after it, in a folder that all ranks see, and each
// of its ranks a line there, which it renews while it waits. A rank is missing if it has no line, or if its
// line is no longer renewed. Exception: the line has the number of BoundedCalls that the rank has returned
// from; a rank that is ahead of the reader in this count keeps nobody waiting. A rank opens its node's file
// once; after a timeout one rank reads the files of all nodes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/environment.h"
#include "mpi/comm.h"

namespace argosy::mpi {

/// A timeout for a call that may wait for other ranks for ever, such as MPI_Init. If the object exists for
/// longer than ARGOSY_START_SECONDS, its thread prints a message and ends the process with the watchdog's
/// exit code. The message names the missing ranks if the folder ARGOSY_ARRIVALS is set.
class BoundedCall {
  public:
    /// `what` names the call in the message.
    explicit BoundedCall(std::string what);
    /// Ends the timeout: the call has returned.
    ~BoundedCall();
    BoundedCall(const BoundedCall&) = delete;

  private:
    void watch(const Environment::Start& start);
    /// Waits at most `seconds` for the destructor and renews this rank's line meanwhile. Returns whether the
    /// destructor was called.
    bool returns_within(double seconds, const Environment::Start& start);

    std::string what_;
    std::mutex mutex_;
    std::condition_variable done_changed_;
    bool done_ = false;
    std::thread thread_;
};

/// "missing: rank 3, 5"; jobs/shell/requeue.sh looks for this format.
std::string named_missing(std::span<const int> ranks);

/// COLLECTIVE, with the timeout of a BoundedCall: gathers `own` of every rank into `all`, in the order of
/// ranks. REQUIRES: `own` has the same size on every rank. `what` names the data in messages.
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
