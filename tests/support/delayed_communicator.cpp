#include "support/delayed_communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace argosy::testing {

using comm::Op;
using comm::OpKind;

namespace {

double bytes_of(const Op& op) {
    const int64_t elements =
        std::max(op.in.defined() ? op.in.numel() : 0, op.out.defined() ? op.out.numel() : 0);
    return static_cast<double>(elements) * size_bytes(comm::element_type(op));
}

at::Tensor time_now() { return at::full({1}, seconds_now(), at::kDouble); }

/// A group of two neighbours on the ring; null for other ranks. COLLECTIVE over the group.
std::unique_ptr<comm::Communicator> make_channel(const comm::Communicator& group, int sender) {
    std::array<int, 2> ranks = {sender, (sender + 1) % group.size()};
    std::ranges::sort(ranks);
    if (std::ranges::find(ranks, group.rank()) == ranks.end()) return nullptr;
    return group.subgroup(ranks, group.name());
}

/// The number of a rank in its channel with another one.
int rank_in_channel(int rank, int other) { return rank < other ? 0 : 1; }

}  // namespace

/// The operations of one submission: the backend's, and what determines when they end on the network.
class DelayedCommunicator::Delivery : public comm::Completion {
  public:
    explicit Delivery(std::shared_ptr<Delivery> before) : before_(std::move(before)) {}

    void add(comm::Pending pending) { pending_.push_back(std::move(pending)); }
    /// An operation begins at the last of `times`, occupies the receiving link for `seconds`, and ends
    /// `latency` later.
    void add_time(at::Tensor times, double seconds, double latency) {
        transfers_.push_back({std::move(times), seconds, latency});
    }

    void wait() override {
        finish();
        while (seconds_now() < end_) {
            std::this_thread::sleep_for(std::chrono::duration<double>(end_ - seconds_now()));
        }
    }

  private:
    struct Transfer {
        at::Tensor times;  // of submission, by rank; valid after the backend's operations have ended
        double seconds, latency;
    };

    /// Ends the backend's operations and calculates the end of the network's.
    void finish() {
        if (before_) {
            before_->finish();
            link_is_free_ = std::exchange(before_, nullptr)->link_is_free_;
        }
        for (comm::Pending& pending : std::exchange(pending_, {})) pending.wait();
        for (const Transfer& transfer : std::exchange(transfers_, {})) {
            link_is_free_ = std::max(link_is_free_, transfer.times.max().item<double>()) + transfer.seconds;
            end_ = std::max(end_, link_is_free_ + transfer.latency);
        }
    }

    std::shared_ptr<Delivery> before_;
    std::vector<comm::Pending> pending_;
    std::vector<Transfer> transfers_;
    double link_is_free_ = 0, end_ = 0;
};

namespace {

/// Waits for a delivery that later ones refer to as well.
template <class Delivery>
class Shared : public comm::Completion {
  public:
    explicit Shared(std::shared_ptr<Delivery> delivery) : delivery_(std::move(delivery)) {}
    void wait() override { delivery_->wait(); }

  private:
    std::shared_ptr<Delivery> delivery_;
};

}  // namespace

DelayedCommunicator::DelayedCommunicator(comm::Communicator& inner, std::string delayed,
                                         const Network& network)
    : Communicator(inner.name(), inner.device()),
      inner_(inner),
      delayed_(std::move(delayed)),
      network_(network) {}

DelayedCommunicator::DelayedCommunicator(std::unique_ptr<comm::Communicator> inner, std::string delayed,
                                         const Network& network)
    : Communicator(inner->name(), inner->device()),
      owned_(std::move(inner)),
      inner_(*owned_),
      delayed_(std::move(delayed)),
      network_(network) {}

DelayedCommunicator::~DelayedCommunicator() = default;

std::unique_ptr<comm::Communicator> DelayedCommunicator::subgroup(std::span<const int> ranks,
                                                                  std::string name) const {
    return std::unique_ptr<Communicator>(
        new DelayedCommunicator(inner_.subgroup(ranks, std::move(name)), delayed_, network_));
}

void DelayedCommunicator::open_channels() {
    if (name() != delayed_) return inner_.open_channels();
    for (int sender = 0; sender < size(); ++sender) {
        auto channel = make_channel(inner_, sender);
        if (sender == rank())
            to_next_ = std::move(channel);
        else if (sender == previous())
            from_previous_ = std::move(channel);
    }
}

comm::Pending DelayedCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty() || name() != delayed_) return inner_.submit(ops);
    const auto delivery = std::make_shared<Delivery>(last_);
    for (const Op& op : ops) {
        comm::check(op, *this);
        comm::is_message(op) ? add_message(*delivery, op) : add_collective(*delivery, op);
    }
    last_ = delivery;
    comm::Pending pending(std::make_unique<Shared<Delivery>>(delivery), comm::tensors_of(ops),
                          exposed_seconds_slot());
    if (network_.blocking) pending.wait();
    return pending;
}

void DelayedCommunicator::add_message(Delivery& delivery, const Op& op) {
    const bool sends = op.kind == OpKind::Send;
    ARGOSY_CHECK(op.peer == (sends ? next() : previous()), "{} of rank {} with rank {}",
                 comm::kind_name(op.kind), rank(), op.peer);
    const int root = sends ? rank_in_channel(rank(), op.peer) : rank_in_channel(op.peer, rank());
    const at::Tensor time = time_now();
    const Op broadcasts[] = {{.kind = OpKind::Broadcast, .out = sends ? op.in : op.out, .peer = root},
                             {.kind = OpKind::Broadcast, .out = time, .peer = root}};
    delivery.add((sends ? to_next_ : from_previous_)->submit(broadcasts));
    if (!sends) delivery.add_time(time, bytes_of(op) / network_.bytes_per_second, network_.latency_seconds);
}

void DelayedCommunicator::add_collective(Delivery& delivery, const Op& op) {
    const at::Tensor times = at::empty({size()}, at::kDouble);
    const Op ops[] = {op, {.kind = OpKind::AllGather, .out = times, .in = time_now()}};
    delivery.add(inner_.submit(network_.delays_collectives ? std::span(ops) : std::span(ops, 1)));
    if (!network_.delays_collectives) return;
    const double once = (size() - 1) * network_.message_seconds(bytes_of(op) / size());
    delivery.add_time(times, op.kind == OpKind::AllReduce ? 2 * once : once, /*latency=*/0);
}

}  // namespace argosy::testing
