// Communication between the ranks beside the measured operations. RankInfo describes a rank in reports and
// errors. ControlChannel waits for other ranks, always with a timeout.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "mpi/comm.h"
#include "watch/watchdog.h"

namespace argosy::bench {

struct RankInfo {
    std::string host;
    int process = 0;
};

/// "ranks 3 (process 17 on node1), 4 (...)". The text names at most 16 ranks and counts the others.
std::string names_of(const std::vector<RankInfo>& ranks, std::span<const int> numbers);

/// Polls `request` until it completes. Returns false after `seconds`.
bool finished_within(mpi::Request request, double seconds);

/// Barriers, all-gathers, gathers and waits among all ranks, on communicators of their own. Each wait has a
/// timeout. A TimeoutError names the missing ranks, which the watchdogs of all ranks find together
/// (watch/watchdog.h).
class ControlChannel {
  public:
    /// COLLECTIVE over `world`.
    ControlChannel(const mpi::Comm& world, double timeout_seconds);

    const std::vector<RankInfo>& ranks() const { return ranks_; }

    /// COLLECTIVE: a barrier before the operation that `before` names. Returns on all ranks at about the same
    /// time, or throws TimeoutError.
    void barrier(const std::string& before) const;

    /// Waits for `request`. Throws TimeoutError with `operation` in its text.
    void wait(mpi::Request request, const std::string& operation) const;

    /// COLLECTIVE over `members`, which are ranks of `world` in ascending order. If a member does not arrive,
    /// the process ends with the message of a TimeoutError.
    mpi::Comm subgroup(const mpi::Comm& world, std::span<const int> members) const;

    /// COLLECTIVE: an all-gather of one value from each rank. Returns the values by rank.
    template <class Value>
    std::vector<Value> exchange(const Value& own) const {
        return exchange_several(std::span(&own, 1));
    }
    /// COLLECTIVE: an all-gather of the same number of values from each rank. Returns the values by rank.
    template <class Value>
    std::vector<Value> exchange_several(std::span<const Value> own) const {
        static_assert(std::is_trivially_copyable_v<Value>);
        std::vector<Value> all(own.size() * static_cast<size_t>(comm_.size()));
        exchange_bytes(all.data(), std::as_bytes(own));
        return all;
    }

    /// COLLECTIVE: an all-gather of one text from each rank. Returns the texts by rank. For short texts,
    /// because every rank receives as much as if each were as long as the longest.
    std::vector<std::string> exchange_texts(const std::string& own) const;

    /// COLLECTIVE: a gather of one text from each rank, of any length. Returns the texts by rank on rank 0,
    /// and none on the others.
    std::vector<std::string> gather_texts(const std::string& own) const;

    /// The error to throw on a rank whose wait in `operation` timed out. A rank counts as missing if it is
    /// neither in timeout_error() nor in one of the waits above.
    TimeoutError timeout_error(const std::string& operation) const;

  private:
    void exchange_bytes(void* all, std::span<const std::byte> own) const;
    watch::AwaitedOperation awaited(const std::string& operation, double limit_seconds) const;
    TimeoutError error(const std::string& operation, const watch::WaitFailure& late) const;

    mpi::Comm comm_;
    double timeout_seconds_;
    const std::string name_ = "all ranks";
    std::vector<int> everyone_;
    std::unique_ptr<watch::Watchdog> watchdog_;
    std::vector<RankInfo> ranks_;  // empty until the constructor has gathered the entries
};

}  // namespace argosy::bench
