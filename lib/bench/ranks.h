// Who takes part: host and process of every rank, for reports and for naming the one that stays away.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "mpi/comm.h"
#include "mpi/roll.h"

namespace argosy::bench {

struct RankInfo {
    std::string host;
    int process = 0;
};

/// COLLECTIVE: of every rank, by number. Throws TimeoutError, which can name nobody yet.
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
    std::string names_of(std::span<const int> ranks) const;

    mpi::Comm arrivals_;
    std::unique_ptr<mpi::Roll> roll_;
    std::vector<RankInfo> ranks_;
    double timeout_seconds_;
};

}  // namespace argosy::bench
