// Host and process of every rank, for reports and for errors that name missing ranks; and ControlChannel,
// whose waits for other ranks all have a timeout.
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

/// "ranks 3 (process 17 on node1), 4 (...)"; the text names at most 16 ranks and counts the rest.
std::string names_of(const std::vector<RankInfo>& ranks, std::span<const int> numbers);

/// Polls `request` until it completes. Returns false after `seconds`.
bool finished_within(mpi::Request request, double seconds);

/// Barriers, all-gathers and waits among all ranks, on communicators apart from the benchmark's messages.
/// Each wait has a timeout. A TimeoutError names the missing ranks, which the watchdogs of all ranks find out
/// (watch/watchdog.h).
class ControlChannel {
  public:
    /// COLLECTIVE over `world`.
    ControlChannel(const mpi::Comm& world, double timeout_seconds);

    const std::vector<RankInfo>& ranks() const { return ranks_; }

    /// COLLECTIVE: a barrier before the operation `before`. Returns on all ranks at about the same time, or
    /// throws TimeoutError.
    void barrier(const std::string& before) const;

    /// Waits for `request`. Throws TimeoutError with `operation` in its text.
    void wait(mpi::Request request, const std::string& operation) const;

    /// COLLECTIVE over `members`, numbers in `world` in ascending order. If a member does not come, the
    /// process ends with the message of a TimeoutError.
    mpi::Comm subgroup(const mpi::Comm& world, std::span<const int> members) const;

    /// COLLECTIVE: an all-gather of one value from each rank; returns them by rank.
    template <class Card>
    std::vector<Card> exchange(const Card& own) const {
        return exchange_several(std::span(&own, 1));
    }
    /// COLLECTIVE: an all-gather of equally many values from each rank; rank 0's come first.
    template <class Card>
    std::vector<Card> exchange_several(std::span<const Card> own) const {
        static_assert(std::is_trivially_copyable_v<Card>);
        std::vector<Card> all(own.size() * static_cast<size_t>(comm_.size()));
        exchange_bytes(all.data(), std::as_bytes(own));
        return all;
    }

    /// COLLECTIVE: an all-gather of texts, which may differ in length; returns them by rank.
    std::vector<std::string> exchange_texts(const std::string& own) const;

    /// The error to throw on a rank whose wait in `operation` timed out. The error names as missing the ranks
    /// that are neither in timeout_error() nor in one of the waits above.
    TimeoutError timeout_error(const std::string& operation) const;

  private:
    void exchange_bytes(void* all, std::span<const std::byte> own) const;
    watch::AwaitedOperation awaited(const std::string& operation, double limit_seconds) const;
    TimeoutError error(const std::string& operation, const watch::LateRanks& late) const;

    mpi::Comm comm_;
    double timeout_seconds_;
    const std::string name_ = "all ranks";
    std::vector<int> everyone_;
    std::unique_ptr<watch::Watchdog> watchdog_;
    std::vector<RankInfo> ranks_;  // empty until the constructor has gathered it
};

}  // namespace argosy::bench
