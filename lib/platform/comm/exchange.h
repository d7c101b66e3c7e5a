// Collectives of ranks on one node through shared memory. submit() copies a rank's input to memory that its
// peers can read; each peer reads the input, and reduces it, in its wait. A rank that computes after submit()
// therefore delays no peer.
//
// Memory. Each rank has one ring. Only the used part of a ring is ever touched: about twice the bytes in
// flight. Input that does not fit into the ring is published later, when there is room and the rank waits for
// something. Peers depend on the rank's attention only for such input, and for the second half of an
// all-reduce in two steps (transfer.cpp).
//
// Different operations. If a peer has submitted another operation, its blocks count as not arrived: a rank
// that reads them waits until the watchdog names the operation, instead of reading data that mean something
// else. A rank that reads no block of that peer notices nothing. For example, two ranks that broadcast, each
// as the root, both go on.
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
    /// COLLECTIVE over `peers`, which are on one node; `peers` also carries the setup messages. Each rank
    /// gets a ring of `ring_bytes`. Returns null on all ranks if any of them cannot share memory; the lowest
    /// rank that cannot logs why.
    static std::shared_ptr<Exchange> open(Communicator& peers, int64_t ring_bytes);

    /// Starts collectives, and publishes as much as there is room for. Returns the number to pass to done(),
    /// which is true once these collectives have ended. REQUIRES: the tensors' memory stays valid until
    /// done() is true.
    int64_t submit(std::span<const Op> ops);
    bool done(int64_t round) const { return num_consumed_ >= round; }
    /// Publishes at most one round and consumes at most one, without waiting. Returns false if neither was
    /// possible.
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
    std::deque<Transfer> transfers_;                                    // not consumed yet, oldest first
    int64_t num_submitted_ = 0, num_published_ = 0, num_consumed_ = 0;  // rounds
};

/// The exchanges of the outermost group and all its subgroups: a rank that waits in one of them also advances
/// the others.
class Exchanges {
  public:
    void add(const std::shared_ptr<Exchange>& exchange) { exchanges_.push_back(exchange); }
    /// Advances each exchange once. Returns false if there was nothing to do.
    bool advance();

  private:
    std::vector<std::weak_ptr<Exchange>> exchanges_;
};

}  // namespace argosy::comm
