#include "comm/mpi_communicator.h"

#include <utility>
#include <vector>

#include "base/error.h"

namespace argosy::comm {
namespace {

class MpiCompletion : public Completion {
  public:
    MpiCompletion(std::shared_ptr<const Group> group, OpKind first_kind, int64_t number)
        : group_(std::move(group)), first_kind_(first_kind), number_(number) {}

    void add(mpi::Request request) { requests_.push_back(request); }

    void wait() override {
        const watch::AwaitedOperation awaited = group_->awaited(first_kind_, number_);
        watch::HostWait wait(group_->watchdog().waits(), awaited);
        while (!mpi::test_all(requests_)) {
            if (group_->exchanges().advance()) continue;
            if (const auto late = wait.pause()) throw group_->timeout(awaited, *late);
        }
    }

  private:
    std::shared_ptr<const Group> group_;
    std::vector<mpi::Request> requests_;
    OpKind first_kind_;
    int64_t number_;
};

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<const Group> group)
    : Communicator(group->name(), group->options().device), group_(std::move(group)) {}

std::unique_ptr<Communicator> MpiCommunicator::subgroup(std::span<const int> ranks, std::string name) const {
    return make_communicator(std::make_shared<const Group>(group_->subgroup(ranks, std::move(name))));
}

void MpiCommunicator::check(const Op& op) const {
    comm::check(op, size());
    for (const at::Tensor& tensor : tensors_of({&op, 1})) {
        ARGOSY_CHECK(tensor.is_cpu(), "{} of a tensor on {} by a group of {} that knows of no GPU",
                     kind_name(op.kind), tensor.device().str(), name());
    }
}

mpi::Request MpiCommunicator::start(const Op& op) const {
    check(op);
    const auto reduction = op.reduction == Reduction::Sum ? mpi::Reduction::Sum : mpi::Reduction::Max;
    const ElementType type = element_type(op);
    const mpi::Comm& comm = group_->comm();
    void* out = op.out.defined() ? op.out.mutable_data_ptr() : nullptr;
    const void* in = op.in.defined() ? op.in.const_data_ptr() : nullptr;
    switch (op.kind) {
        case OpKind::AllGather:
            return comm.all_gather(out, in, op.in.numel(), type);
        case OpKind::ReduceScatter:
            return comm.reduce_scatter(out, in, op.out.numel(), type, reduction);
        case OpKind::AllReduce:
            return comm.all_reduce(out, in, op.out.numel(), type, reduction);
        case OpKind::Broadcast:
            return comm.broadcast(out, op.out.numel(), type, op.peer);
        case OpKind::Send:
            return comm.send(in, op.in.numel(), type, op.peer, group_->options().synchronous_sends);
        case OpKind::Receive:
            return comm.receive(out, op.out.numel(), type, op.peer);
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
    for (const Op& op : ops) started.add(start(op));
    return pending;
}

}  // namespace argosy::comm
