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

/// COLLECTIVE: what every rank tells of itself, by number. Throws TimeoutError, which can name nobody yet.
template <class Card>
std::vector<Card> exchange(const mpi::Comm& world, const Card& own, double timeout_seconds);

/// COLLECTIVE: likewise.
std::vector<RankInfo> exchange_rank_info(const mpi::Comm& world, double timeout_seconds);

/// Waits for one operation; false when it takes longer than that.
bool finished_within(mpi::Request request, double seconds);

/// Whether all ranks are there, told apart from the benchmark's own messages.
class RollCall {
  public:
    /// COLLECTIVE over `world`.
    RollCall(const mpi::Comm& world, std::vector<RankInfo> ranks, double timeout_seconds);

    const std::vector<RankInfo>& ranks() const { return ranks_; }

    /// COLLECTIVE: returns at about the same time everywhere, or throws TimeoutError that names the ranks
    /// that did not come.
    void assemble(const std::string& before) const;

    /// What to throw on a rank that waited in `operation` in vain: the ranks that wait in vain as well come
    /// to here, or to where all meet, and the others are named.
    TimeoutError late(const std::string& operation) const;

  private:
    TimeoutError error(const std::string& operation, const mpi::Attendance& found) const;

    mpi::Comm arrivals_;
    std::unique_ptr<mpi::Roll> roll_;
    std::vector<RankInfo> ranks_;
    double timeout_seconds_;
};

/// The same in bytes.
void exchange_bytes(const mpi::Comm& world, void* all, std::span<const std::byte> own,
                    double timeout_seconds);

template <class Card>
std::vector<Card> exchange(const mpi::Comm& world, const Card& own, double timeout_seconds) {
    static_assert(std::is_trivially_copyable_v<Card>);
    std::vector<Card> all(world.size());
    exchange_bytes(world, all.data(), std::as_bytes(std::span(&own, 1)), timeout_seconds);
    return all;
}

}  // namespace argosy::bench
