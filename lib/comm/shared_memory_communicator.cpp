#include "comm/shared_memory_communicator.h"

#include <utility>
#include <vector>

#include "mpi/comm.h"

namespace argosy::comm {
namespace {

class SharedMemoryCompletion : public Completion {
  public:
    struct Submission {
        OpKind first_kind;
        int64_t number;
        int64_t end_round;
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
                wait.begin_anew();
                continue;
            }
            // Peers may first need this rank's attention in another group, or for a message.
            if (group_->exchanges().advance()) continue;
            mpi::make_progress();
            if (const auto late = wait.pause()) throw group_->timeout(awaited, *late);
        }
        messages_.wait();
    }

  private:
    std::shared_ptr<const Group> group_;
    std::shared_ptr<Exchange> exchange_;
    Submission submission_;
    Pending messages_;
};

}  // namespace

SharedMemoryCommunicator::SharedMemoryCommunicator(std::shared_ptr<const Group> group,
                                                   std::shared_ptr<Exchange> exchange)
    : Communicator(group->name(), group->options().device),
      group_(std::move(group)),
      exchange_(std::move(exchange)),
      messages_(group_) {
    group_->exchanges().add(exchange_);
}

std::unique_ptr<Communicator> SharedMemoryCommunicator::subgroup(std::span<const int> ranks,
                                                                 std::string name) const {
    return make_communicator(std::make_shared<const Group>(group_->subgroup(ranks, std::move(name))));
}

Pending SharedMemoryCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return {};
    const Exposed exposed(*this);
    std::vector<Op> collectives, messages;
    for (const Op& op : ops) {
        messages_.check(op);
        const bool message = op.kind == OpKind::Send || op.kind == OpKind::Receive;
        (message ? messages : collectives).push_back(op);
    }
    Pending sent = messages_.submit(messages);  // first: it may throw, and the exchange keeps pointers
    const SharedMemoryCompletion::Submission submission{ops[0].kind, num_submitted_++,
                                                        exchange_->submit(collectives)};
    return Pending(std::make_unique<SharedMemoryCompletion>(group_, exchange_, submission, std::move(sent)),
                   tensors_of(ops), exposed_seconds_slot());
}

}  // namespace argosy::comm
