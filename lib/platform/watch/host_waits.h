// The waits of this rank's host for other ranks. A HostWait enters itself in the list (HostWaits) while it
// lasts. The watchdog's thread reads the list. If a wait is late, the thread tells the waits which ranks are
// missing. A wait that polls then fails, so that its caller can throw; a call that blocks ends with its
// process. Any thread may use HostWaits; only one thread may use a HostWait.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/time_limit.h"
#include "watch/report.h"

namespace argosy::watch {

/// Why ranks wait for ever. Ranks have their numbers in the outermost group.
struct WaitCause {
    std::vector<int> missing;  // ascending; empty if all ranks that others wait for wait themselves
    /// The ranks that wait for the file system longer than its limit, in words; no rank is missing then. "":
    /// there are none.
    std::string storage;
    std::string difference;  // the first operation on which ranks differ, in words; empty: none is known
    /// The end of a message, or "": ". The others wait for all-gather over tp (operation 8): rank 1".
    std::string details;
};

/// Why a wait has failed.
struct WaitFailure {
    WaitCause cause;
    bool reported_by_another = false;  // another rank has the same error and ends the job
};

/// The operation that a wait is for. REQUIRES: the references outlive the wait.
struct AwaitedOperation {
    std::function<std::string()> operation;  // as messages name it; any thread may call it
    const std::string& group;
    const std::vector<int>& members;  // numbers in the outermost group
    WaitLimit limit;
};

/// The report on a wait that has just begun.
WaitReport report_of(const AwaitedOperation& awaited);

class HostWaits {
  public:
    /// `storage` limits waits for the file system.
    explicit HostWaits(WaitLimit storage = {std::numeric_limits<double>::max(), ""})
        : storage_limit_(storage) {}

    /// Returns the waits under way. The time since the last poll() counts as waiting time, except for time in
    /// which this process itself stood still (SIGSTOP, a suspended job).
    std::vector<WaitReport> poll();
    /// The wait for the file system that began first, as of the last poll(); the last long one that has ended
    /// while none is under way, or only a short one. Times count in the same way.
    std::optional<StorageWait> storage() const;

    /// Makes all waits that poll fail. Returns a call that blocks, if there is one.
    std::optional<WaitReport> fail(const WaitFailure& failure);

  private:
    friend class HostWait;
    struct Entry {
        const AwaitedOperation* awaited = nullptr;
        bool blocks = false;
        double began_at_seconds = 0;
        double waited_seconds = 0;
        std::atomic<bool> failed = false;
        WaitFailure failure = {};
    };

    void poll_storage(double elapsed_seconds);
    StorageWait report_of_file_wait() const;

    const WaitLimit storage_limit_;
    mutable std::mutex mutex_;
    std::list<Entry> entries_;
    std::optional<FileWait::Mark> file_wait_;
    double file_wait_seconds_ = 0;  // of file_wait_
    std::optional<StorageWait> ended_file_wait_;
    double last_poll_seconds_ = seconds_now();
};

class HostWait {
  public:
    enum class Kind { Polls, Blocks };

    /// A wait that polls enters the list at its first pause(), so that a short wait costs nothing.
    /// REQUIRES: `waits` outlives this object.
    HostWait(HostWaits& waits, AwaitedOperation awaited, Kind kind = Kind::Polls);
    ~HostWait();
    HostWait(const HostWait&) = delete;

    /// Starts the timeout again. Call this after progress was made.
    void restart();

    /// Call this between two checks of the awaited condition. Pauses briefly, or returns the cause if the
    /// wait has failed.
    std::optional<WaitFailure> pause();

  private:
    void enter(bool blocks);

    HostWaits& waits_;
    const AwaitedOperation awaited_;
    PollTimer timer_;
    std::optional<std::list<HostWaits::Entry>::iterator> entry_;
};

}  // namespace argosy::watch
