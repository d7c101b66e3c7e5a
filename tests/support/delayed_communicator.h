// A network with a set latency and bandwidth, for measurements of communication that overlaps computation: a
// DelayedCommunicator moves data through another communicator and sleeps in wait() until that network would
// have delivered them. A sleep takes no core, so a rank computes undisturbed while its data are on their way.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace argosy::testing {

/// A message takes the latency and its bytes / bandwidth, counted from its submission by the sender. On the
/// ring of a group's n ranks an all-gather, a reduce-scatter or a broadcast takes n - 1 times as long as a
/// message of a piece (the buffer / n), an all-reduce twice as long, counted from the submission by the last
/// rank. What a rank receives in one group queues up: bytes begin to arrive when those before have arrived.
struct Network {
    double latency_seconds = 0;
    double bytes_per_second = 1e15;
    bool blocking = false;           // submit() waits at once, so that nothing overlaps
    bool delays_collectives = true;  // otherwise only messages take time

    double message_seconds(double bytes) const { return latency_seconds + bytes / bytes_per_second; }
};

class DelayedCommunicator : public comm::Communicator {
  public:
    /// Delays no operation of `inner`, but those of the groups made from it that have the name `delayed`.
    /// `network` may change between operations. REQUIRES: inner and network outlive it and its groups; inner
    /// has shared memory with room for all that is in flight.
    DelayedCommunicator(comm::Communicator& inner, std::string delayed, const Network& network);
    ~DelayedCommunicator() override;

    int rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }
    std::unique_ptr<comm::Communicator> subgroup(std::span<const int> ranks, std::string name) const override;
    /// COLLECTIVE: makes the channels of the messages.
    void open_channels() override;

    using Communicator::submit;
    comm::Pending submit(std::span<const comm::Op> ops) override;

  private:
    class Delivery;

    DelayedCommunicator(std::unique_ptr<comm::Communicator> inner, std::string delayed,
                        const Network& network);
    int next() const { return (rank() + 1) % size(); }
    int previous() const { return (rank() + size() - 1) % size(); }
    void add_message(Delivery& delivery, const comm::Op& op);
    void add_collective(Delivery& delivery, const comm::Op& op);

    std::unique_ptr<comm::Communicator> owned_;  // a group of the backend's; null for the first one
    comm::Communicator& inner_;
    std::string delayed_;
    const Network& network_;
    /// A channel is a group of two neighbours that broadcasts: through shared memory, a broadcast needs no
    /// attention of the sender after submit(), as a message does.
    std::unique_ptr<comm::Communicator> to_next_, from_previous_;
    std::shared_ptr<Delivery> last_;  // submitted
};

}  // namespace argosy::testing
