// Who takes part: host and process of every rank, for reports and for naming the one that stays away.
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

/// "ranks 3 (process 17 on node1), 4 (...)", at most so many.
std::string names_of(const std::vector<RankInfo>& ranks, std::span<const int> numbers);

/// Waits for one operation; false when it takes longer than that.
bool finished_within(mpi::Request request, double seconds);

/// Whether all ranks are there, and what they tell each other, apart from the benchmark's own messages. Every
/// wait is bounded and names the ranks that stay away.
class RollCall {
  public:
    /// COLLECTIVE over `world`.
    RollCall(const mpi::Comm& world, double timeout_seconds);

    const std::vector<RankInfo>& ranks() const { return ranks_; }

    /// COLLECTIVE: returns at about the same time everywhere, or throws TimeoutError.
    void assemble(const std::string& before) const;

    /// Waits for what other ranks take part in, and answers meanwhile who waits in vain, so that a rank that
    /// came here later is not missed with the one that does not come. TimeoutError says `operation`.
    void wait(mpi::Request request, const std::string& operation) const;

    /// COLLECTIVE: what every rank tells, by number.
    template <class Card>
    std::vector<Card> exchange(const Card& own) const {
        return exchange_several(std::span(&own, 1));
    }
    /// Likewise of several each, as many on every rank: those of rank 0 first.
    template <class Card>
    std::vector<Card> exchange_several(std::span<const Card> own) const {
        static_assert(std::is_trivially_copyable_v<Card>);
        std::vector<Card> all(own.size() * static_cast<size_t>(meetings_.size()));
        exchange_bytes(all.data(), std::as_bytes(own));
        return all;
    }

    /// What to throw on a rank that waited in `operation` in vain: the ranks that wait in vain as well come
    /// to here, or to where all meet, and the others are named.
    TimeoutError late(const std::string& operation) const;

  private:
    void exchange_bytes(void* all, std::span<const std::byte> own) const;
    TimeoutError error(const std::string& operation, const mpi::Attendance& found) const;

    mpi::Comm meetings_;
    std::unique_ptr<mpi::Roll> roll_;
    double timeout_seconds_;
    std::vector<RankInfo> ranks_;  // none while they are being told
};

}  // namespace argosy::bench
