// The backends for tensors in the host's memory: MPI for any group, and shared memory for the collectives of
// a group within one node.
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/exchange.h"
#include "comm/group.h"
#include "mpi/comm.h"

namespace argosy::comm {
namespace {

constexpr int kTagOfParts = 1;  // of an AllToAll; a Send and its Receive have 0

class MpiCompletion : public Completion {
  public:
    MpiCompletion(std::shared_ptr<const Group> group, OpKind first_kind, int64_t number)
        : group_(std::move(group)), first_kind_(first_kind), number_(number) {}

    void add(mpi::Request request) { requests_.push_back(request); }

    watch::FlightSpan& flight() { return flight_; }

    void wait() override {
        const watch::AwaitedOperation awaited = group_->awaited(first_kind_, number_);
        watch::HostWait wait(group_->watchdog().waits(), awaited);
        while (!have_ended(awaited)) {
            if (group_->exchanges().advance()) continue;
            if (const auto failure = wait.pause()) throw group_->timeout(awaited, *failure);
        }
        flight_.set_ended();
    }

  private:
    bool have_ended(const watch::AwaitedOperation& awaited) {
        try {
            return mpi::test_all(requests_);
        } catch (const RunError& error) {
            const std::string what = error.what();
            const bool is_truncated = what.find("MPI_ERR_TRUNCATE") != std::string::npos;
            throw RunError("{}: {}{}", awaited.operation(), what,
                           is_truncated ? ". The ranks have submitted different operations" : "");
        }
    }

    std::shared_ptr<const Group> group_;
    std::vector<mpi::Request> requests_;
    watch::FlightSpan flight_;
    OpKind first_kind_;
    int64_t number_;
};

class SharedMemoryCompletion : public Completion {
  public:
    struct Submission {
        OpKind first_kind;
        int64_t number;
        int64_t end_round;
        watch::FlightSpan flight;
    };
    SharedMemoryCompletion(std::shared_ptr<const Group> group, std::shared_ptr<Exchange> exchange,
                           const Submission& submission, Pending messages)
        : group_(std::move(group)),
          exchange_(std::move(exchange)),
          submission_(submission),
          messages_(std::move(messages)) {}

    void wait() override {
        const watch::AwaitedOperation awaited = group_->awaited(submission_.first_kind, submission_.number);
        watch::HostWait wait(group_->watchdog().waits(), awaited);
        while (!exchange_->done(submission_.end_round)) {
            if (exchange_->advance()) {
                wait.restart();
                continue;
            }
            // A peer may first need this rank's attention in another group, or for a message.
            if (group_->exchanges().advance()) continue;
            mpi::make_progress();
            if (const auto failure = wait.pause()) throw group_->timeout(awaited, *failure);
        }
        submission_.flight.set_ended();
        messages_.wait();
    }

  private:
    std::shared_ptr<const Group> group_;
    std::shared_ptr<Exchange> exchange_;
    Submission submission_;
    Pending messages_;
};

/// Uses MPI's non-blocking calls, and waits with a timeout. No data moves while a rank computes, because Open
/// MPI makes progress only within its calls.
class MpiCommunicator : public GroupCommunicator {
  public:
    using GroupCommunicator::GroupCommunicator;

    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;

    /// Throws RunError for an operation that this backend cannot start.
    void check(const Op& op) const;

  private:
    mpi::Request start(const Op& op, int tag = 0) const;

    int64_t num_submitted_ = 0;
};

/// Collectives go through shared memory. A peer that has submitted need not attend to them; exchange.h has
/// the exceptions. Sends and receives go through MPI, because they connect pipeline stages, which are usually
/// on different nodes. An AllToAll goes through MPI as well: in a round of an Exchange all ranks publish
/// equally much, and these parts have any size.
class SharedMemoryCommunicator : public GroupCommunicator {
  public:
    /// `exchange` belongs to the same group.
    SharedMemoryCommunicator(std::shared_ptr<const Group> group, std::shared_ptr<Exchange> exchange)
        : GroupCommunicator(std::move(group)), exchange_(std::move(exchange)), messages_(group_) {
        group_->exchanges().add(exchange_);
    }

    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;

  private:
    std::shared_ptr<Exchange> exchange_;
    MpiCommunicator messages_;
    int64_t num_submitted_ = 0;
};

void MpiCommunicator::check(const Op& op) const {
    comm::check(op, *this);
    for (const at::Tensor& tensor : tensors_of({&op, 1})) {
        ARGOSY_CHECK(tensor.is_cpu(), "{} of a tensor on {} over {}, which only sends tensors of the host",
                     kind_name(op.kind), tensor.device().str(), name());
    }
}

mpi::Request MpiCommunicator::start(const Op& op, int tag) const {
    const ElementType type = element_type(op);
    const mpi::Comm& comm = group_->comm();
    void* out = op.out.defined() ? op.out.mutable_data_ptr() : nullptr;
    const void* in = op.in.defined() ? op.in.const_data_ptr() : nullptr;
    switch (op.kind) {
        case OpKind::AllGather:
            return comm.all_gather(out, in, op.in.numel(), type);
        case OpKind::ReduceScatter:
            return comm.reduce_scatter(out, in, op.out.numel(), type, op.reduction);
        case OpKind::AllReduce:
            return comm.all_reduce(out, in, op.out.numel(), type, op.reduction);
        case OpKind::Broadcast:
            return comm.broadcast(out, op.out.numel(), type, op.peer);
        case OpKind::Send:
            return comm.send(in, op.in.numel(), type, op.peer, group_->options().synchronous_sends, tag);
        case OpKind::Receive:
            return comm.receive(out, op.out.numel(), type, op.peer, tag);
        case OpKind::AllToAll:
            break;  // messages_of() has its parts
    }
    throw RunError("internal error: unknown operation");
}

// The Pending is made first: if start() throws for one operation, the operations before it have started and
// need their tensors.
Pending MpiCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return {};
    const Exposed exposed(*this);
    auto completion = std::make_unique<MpiCompletion>(group_, ops[0].kind, num_submitted_++);
    MpiCompletion& started = *completion;
    Pending pending(std::move(completion), tensors_of(ops), exposed_seconds_slot());
    for (const Op& op : ops) {
        check(op);
        group_->record(op, started.flight());
        if (op.kind == OpKind::AllToAll) {
            for (const Op& message : messages_of(op)) started.add(start(message, kTagOfParts));
        } else {
            started.add(start(op));
        }
    }
    return pending;
}

Pending SharedMemoryCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return {};
    const Exposed exposed(*this);
    std::vector<Op> collectives, messages;
    for (const Op& op : ops) {
        messages_.check(op);
        const bool by_mpi = is_message(op) || op.kind == OpKind::AllToAll;
        (by_mpi ? messages : collectives).push_back(op);
    }
    Pending sent = messages_.submit(messages);  // first: it may throw, and the exchange keeps pointers
    watch::FlightSpan flight;
    for (const Op& op : collectives) group_->record(op, flight);
    const SharedMemoryCompletion::Submission submission{ops[0].kind, num_submitted_++,
                                                        exchange_->submit(collectives), flight};
    return Pending(std::make_unique<SharedMemoryCompletion>(group_, exchange_, submission, std::move(sent)),
                   tensors_of(ops), exposed_seconds_slot());
}

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<const Group> group) {
    const int64_t ring_bytes = group->options().shared_memory_bytes;
    if (ring_bytes > 0 && group->size() > 1 && group->comm().within_one_node()) {
        MpiCommunicator peers(group);
        if (auto exchange = Exchange::open(peers, ring_bytes)) {
            return std::make_unique<SharedMemoryCommunicator>(std::move(group), std::move(exchange));
        }
    }
    return std::make_unique<MpiCommunicator>(std::move(group));
}

}  // namespace argosy::comm
