// Host and process of every rank, for reports and for errors that name missing ranks; and RollCall, whose
// waits for other ranks all have a timeout.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "mpi/comm.h"
#include "mpi/roll.h"

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
/// Each wait has a timeout. A TimeoutError names the missing ranks: the ranks that do not answer when a rank
/// whose wait timed out asks every rank whether it waits too (the protocol is in mpi/roll.h).
class RollCall {
  public:
    /// COLLECTIVE over `world`.
    RollCall(const mpi::Comm& world, double timeout_seconds);

    const std::vector<RankInfo>& ranks() const { return ranks_; }

    /// COLLECTIVE: a barrier before the operation `before`. Returns on all ranks at about the same time, or
    /// throws TimeoutError.
    void assemble(const std::string& before) const;

    /// Waits for `request`. Meanwhile it answers ranks whose waits timed out, so that they report only the
    /// rank that is really missing, and not this one, which only began to wait later. Throws TimeoutError
    /// with `operation` in its text.
    void wait(mpi::Request request, const std::string& operation) const;

    /// COLLECTIVE: an all-gather of one value from each rank; returns them by rank.
    template <class Card>
    std::vector<Card> exchange(const Card& own) const {
        return exchange_several(std::span(&own, 1));
    }
    /// COLLECTIVE: an all-gather of equally many values from each rank; rank 0's come first.
    template <class Card>
    std::vector<Card> exchange_several(std::span<const Card> own) const {
        static_assert(std::is_trivially_copyable_v<Card>);
        std::vector<Card> all(own.size() * static_cast<size_t>(meetings_.size()));
        exchange_bytes(all.data(), std::as_bytes(own));
        return all;
    }

    /// The error to throw on a rank whose wait in `operation` timed out. The error names as missing the ranks
    /// that are neither in late() nor in one of the waits above.
    TimeoutError late(const std::string& operation) const;

  private:
    void exchange_bytes(void* all, std::span<const std::byte> own) const;
    TimeoutError error(const std::string& operation, const mpi::Attendance& found) const;

    mpi::Comm meetings_;
    std::unique_ptr<mpi::Roll> roll_;
    double timeout_seconds_;
    std::vector<RankInfo> ranks_;  // empty until the constructor has gathered it
};

}  // namespace argosy::bench
