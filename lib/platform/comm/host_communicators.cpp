#include "comm/host_communicators.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "mpi/comm.h"

namespace argosy::comm {
namespace {

class MpiCompletion : public Completion {
  public:
    /// Adds the time in which messages were not sent yet to `unsent_seconds`.
    MpiCompletion(std::shared_ptr<const Group> group, OpKind first_kind, int64_t number,
                  double& unsent_seconds)
        : group_(std::move(group)),
          first_kind_(first_kind),
          number_(number),
          unsent_seconds_(unsent_seconds) {}

    void add(mpi::Request request) { requests_.push_back(request); }

    void add_send(const Op& op, bool synchronous) {
        const auto* in = static_cast<const char*>(op.in.const_data_ptr());
        for_each_part(op.in, [&](int64_t first, int64_t count) {
            const char* const from = in + first * op.in.element_size();
            add(group_->comm().send(from, count, element_type(op), op.peer, synchronous));
        });
    }

    void add_receive(const Op& op) {
        auto* out = static_cast<char*>(op.out.mutable_data_ptr());
        for_each_part(op.out, [&](int64_t first, int64_t count) {
            char* const to = out + first * op.out.element_size();
            (first == 0 ? first_parts_ : requests_)
                .push_back(group_->comm().receive(to, count, element_type(op), op.peer));
        });
    }

    watch::FlightSpan& flight() { return flight_; }

    void wait() override {
        const watch::AwaitedOperation awaited = group_->awaited(first_kind_, number_);
        watch::HostWait wait(group_->watchdog().waits(), awaited);
        const double start = seconds_now();
        wait_for(first_parts_, wait, awaited);
        if (!first_parts_.empty()) unsent_seconds_ += seconds_now() - start;
        wait_for(requests_, wait, awaited);
        flight_.set_ended();
    }

  private:
    /// Calls visit(first, count) for the elements of the first part, which may be all, and of the rest.
    template <class Visit>
    static void for_each_part(const at::Tensor& tensor, Visit visit) {
        constexpr int64_t kMaxFirst = 256;  // elements: MPI sends 4 KiB at once
        const int64_t first = std::min(tensor.numel(), kMaxFirst);
        visit(0, first);
        if (first < tensor.numel()) visit(first, tensor.numel() - first);
    }

    void wait_for(std::span<mpi::Request> requests, watch::HostWait& wait,
                  const watch::AwaitedOperation& awaited) {
        while (!have_ended(requests, awaited)) {
            if (group_->exchanges().advance()) continue;
            if (const auto failure = wait.pause()) throw group_->timeout(awaited, *failure);
        }
    }

    static bool have_ended(std::span<mpi::Request> requests, const watch::AwaitedOperation& awaited) {
        try {
            return mpi::test_all(requests);
        } catch (const RunError& error) {
            const std::string what = error.what();
            const bool is_truncated = what.find("MPI_ERR_TRUNCATE") != std::string::npos;
            throw RunError("{}: {}{}", awaited.operation(), what,
                           is_truncated ? ". The ranks have submitted different operations" : "");
        }
    }

    std::shared_ptr<const Group> group_;
    std::vector<mpi::Request> first_parts_, requests_;  // the first parts of receives; all others
    watch::FlightSpan flight_;
    OpKind first_kind_;
    int64_t number_;
    double& unsent_seconds_;
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

}  // namespace

void MpiCommunicator::check(const Op& op) const {
    comm::check(op, size());
    for (const at::Tensor& tensor : tensors_of({&op, 1})) {
        ARGOSY_CHECK(tensor.is_cpu(), "{} of a tensor on {} over {}, which only sends tensors of the host",
                     kind_name(op.kind), tensor.device().str(), name());
    }
}

mpi::Request MpiCommunicator::start_collective(const Op& op) const {
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
        case OpKind::Receive:
            break;
    }
    throw RunError("internal error: unknown operation");
}

// The Pending is made first: if start() throws for one operation, the operations before it have started and
// need their tensors.
Pending MpiCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return {};
    const Exposed exposed(*this);
    auto completion = std::make_unique<MpiCompletion>(group_, ops[0].kind, num_submitted_++, unsent_seconds_);
    MpiCompletion& started = *completion;
    Pending pending(std::move(completion), tensors_of(ops), exposed_seconds_slot());
    for (const Op& op : ops) {
        check(op);
        group_->record(op, started.flight());
        if (op.kind == OpKind::Send) {
            started.add_send(op, group_->options().synchronous_sends);
        } else if (op.kind == OpKind::Receive) {
            started.add_receive(op);
        } else {
            started.add(start_collective(op));
        }
    }
    return pending;
}

SharedMemoryCommunicator::SharedMemoryCommunicator(std::shared_ptr<const Group> group,
                                                   std::shared_ptr<Exchange> exchange)
    : GroupCommunicator(std::move(group)), exchange_(std::move(exchange)), messages_(group_) {
    group_->exchanges().add(exchange_);
}

Pending SharedMemoryCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return {};
    const Exposed exposed(*this);
    std::vector<Op> collectives, messages;
    for (const Op& op : ops) {
        messages_.check(op);
        (is_message(op) ? messages : collectives).push_back(op);
    }
    Pending sent = messages_.submit(messages);  // first: it may throw, and the exchange keeps pointers
    watch::FlightSpan flight;
    for (const Op& op : collectives) group_->record(op, flight);
    const SharedMemoryCompletion::Submission submission{ops[0].kind, num_submitted_++,
                                                        exchange_->submit(collectives), flight};
    return Pending(std::make_unique<SharedMemoryCompletion>(group_, exchange_, submission, std::move(sent)),
                   tensors_of(ops), exposed_seconds_slot());
}

}  // namespace argosy::comm
