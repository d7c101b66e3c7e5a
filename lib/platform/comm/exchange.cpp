#include "comm/exchange.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/values.h"

namespace argosy::comm {
namespace {

constexpr int64_t kMaxBlockBytes = 256 << 10;  // a block stays in the L2 cache between two passes over it
constexpr int64_t kMinBlocksInRing = 4;

/// COLLECTIVE: whether no rank has an error (`error` is this rank's, or ""). The lowest rank with an error
/// logs it.
bool all_succeeded(Communicator& peers, const std::string& error) {
    const int64_t own = error.empty() ? 0 : peers.size() - peers.rank();  // the lowest rank has the maximum
    const int64_t of_lowest = maximum(peers, own);
    if (of_lowest != 0 && of_lowest == own) {
        spdlog::warn("{}: shared memory is unavailable, so this node's ranks use MPI instead: {}",
                     peers.name(), error);
    }
    return of_lowest == 0;
}

/// Runs `work`. Returns the text of its RunError, or "".
template <class Work>
std::string error_of(Work work) {
    try {
        work();
        return "";
    } catch (const RunError& error) {
        return error.what();
    }
}

}  // namespace

Exchange::Exchange(const Party& party, std::vector<SharedBoard> boards)
    : party_(party), boards_(std::move(boards)) {}

std::shared_ptr<Exchange> Exchange::open(Communicator& peers, int64_t ring_bytes) {
    std::optional<SharedBoard> own;
    const std::string error = error_of([&] { own = SharedBoard::create(ring_bytes); });
    if (!all_succeeded(peers, error)) return nullptr;

    struct Place {
        SharedSegment::Address address;
        int64_t key;
    };
    const auto places = all_gather(peers, Place{own->address(), own->key()});

    std::vector<SharedBoard> boards;
    const auto attach = [&] {
        for (int rank = 0; rank < peers.size(); ++rank) {
            const auto& [address, key] = places[rank];
            boards.push_back(rank == peers.rank() ? std::move(*own)
                                                  : SharedBoard::attach(address, key, ring_bytes));
        }
    };
    if (!all_succeeded(peers, error_of(attach))) return nullptr;
    boards[peers.rank()].close_descriptor();
    const int64_t block_bytes = std::min(kMaxBlockBytes, ring_bytes / kMinBlocksInRing);
    const Party party{peers.rank(), peers.size(), block_bytes};
    return std::shared_ptr<Exchange>(new Exchange(party, std::move(boards)));
}

int64_t Exchange::submit(std::span<const Op> ops) {
    std::vector<Transfer> started;
    for (const Op& op : ops) {
        const std::vector<Transfer> parts = transfers(op, party_);
        started.insert(started.end(), parts.begin(), parts.end());
    }
    // Blocks are published in order, and a transfer that needs the result of the one before it cannot be
    // published before that result is there. Therefore these transfers come last, so that no other transfer
    // waits for them.
    std::stable_partition(started.begin(), started.end(),
                          [](const Transfer& transfer) { return !transfer.needs_previous; });
    for (Transfer& transfer : started) {
        if (transfer.num_rounds() == 0) continue;
        transfer.first_round = num_submitted_;
        num_submitted_ = transfer.end_round();
        transfers_.push_back(transfer);
    }
    while (publish_one()) {
    }
    return num_submitted_;
}

bool Exchange::advance() {
    const bool published = publish_one();
    return consume_one() || published;
}

const Transfer& Exchange::transfer_of(int64_t round) const {
    return *std::upper_bound(transfers_.begin(), transfers_.end(), round,
                             [](int64_t r, const Transfer& transfer) { return r < transfer.end_round(); });
}

int64_t Exchange::consumed_by_all() const {
    int64_t min_consumed = num_consumed_;
    for (const SharedBoard& board : boards_) min_consumed = std::min(min_consumed, board.consumed());
    return min_consumed;
}

bool Exchange::publish_one() {
    if (num_published_ == num_submitted_) return false;
    const Transfer& transfer = transfer_of(num_published_);
    if (transfer.needs_previous && !done(transfer.first_round)) return false;
    SharedBoard& own = boards_[party_.rank];
    std::byte* const block = own.reserve(block_bytes(transfer, party_), consumed_by_all());
    if (!block) return false;
    write_block(transfer, num_published_, party_, block);
    own.publish(block, transfer.signature);
    ++num_published_;
    return true;
}

bool Exchange::has_arrived(const Transfer& transfer, int rank) const {
    if (rank == party_.rank || !publishes(transfer, rank)) return true;
    const SharedBoard& board = boards_[rank];
    return board.published() > num_consumed_ && board.signature(num_consumed_) == transfer.signature;
}

bool Exchange::consume_one() {
    if (num_consumed_ == num_published_) return false;
    const Transfer& transfer = transfer_of(num_consumed_);
    std::vector<const std::byte*> blocks(party_.size);
    for (int rank = 0; rank < party_.size; ++rank) {
        if (!has_arrived(transfer, rank)) return false;
        if (rank != party_.rank && publishes(transfer, rank))
            blocks[rank] = boards_[rank].block(num_consumed_);
    }
    read_blocks(transfer, num_consumed_, party_, blocks);
    boards_[party_.rank].add_consumed();
    ++num_consumed_;
    while (!transfers_.empty() && done(transfers_.front().end_round())) transfers_.pop_front();
    return true;
}

bool Exchanges::advance() {
    bool moved = false;
    for (const auto& weak : exchanges_) {
        if (const auto exchange = weak.lock()) moved |= exchange->advance();
    }
    return moved;
}

}  // namespace argosy::comm
