// Collectives of ranks on one node through memory that they share. At submission a rank copies its input
// where its peers can read it; they fetch it, and add it up, themselves, when they wait. So a rank that
// computes keeps nobody waiting.
//
// Memory: a ring for each rank, touched as far as it was ever used: some twice what is in flight at once.
// What does not fit is published when there is room again and the rank waits for something, so it then does
// need attention; so does the second half of an all-reduce of more than a block.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/shared_board.h"
#include "comm/transfer.h"

namespace argosy::comm {

class Exchange {
  public:
    /// COLLECTIVE over `peers`, which are on one node, through that communicator. None, on all of them, when
    /// some cannot share memory; the first of those logs why. A rank's ring has `ring_bytes`.
    static std::shared_ptr<Exchange> open(Communicator& peers, int64_t ring_bytes);

    /// Starts collectives: publishes what there is room for. Returns the round that ends them. The memory of
    /// the tensors must stay until then.
    int64_t submit(std::span<const Op> ops);
    bool done(int64_t round) const { return num_consumed_ >= round; }
    /// Publishes or reads one round, whichever can be; false when there is nothing to do, or nothing arrived.
    bool advance();

  private:
    Exchange(const Party& party, std::vector<SharedBoard> boards);
    bool publish_one();
    bool consume_one();
    bool has_arrived(const Transfer& transfer, int rank) const;
    int64_t consumed_by_all() const;
    const Transfer& transfer_of(int64_t round) const;

    Party party_;
    std::vector<SharedBoard> boards_;                                   // by rank
    std::deque<Transfer> transfers_;                                    // that are not consumed, oldest first
    int64_t num_submitted_ = 0, num_published_ = 0, num_consumed_ = 0;  // rounds
};

/// The exchanges of all groups that were made from one: a rank that waits in one of them serves the others.
class Exchanges {
  public:
    void add(const std::shared_ptr<Exchange>& exchange) { exchanges_.push_back(exchange); }
    /// One round in each; false when there was nothing to do.
    bool advance();

  private:
    std::vector<std::weak_ptr<Exchange>> exchanges_;
};

}  // namespace argosy::comm
