#include "comm/mpi_communicator.h"

#include <sched.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace argosy::comm {
namespace {

mpi::Type element_type(const at::Tensor& tensor) {
    switch (tensor.scalar_type()) {
        case at::kFloat:
            return mpi::Type::Float32;
        case at::kDouble:
            return mpi::Type::Float64;
        case at::kBFloat16:
            return mpi::Type::BFloat16;
        case at::kLong:
            return mpi::Type::Int64;
        case at::kByte:
            return mpi::Type::Byte;
        default:
            throw RunError("the MPI backend cannot send elements of type {}", toString(tensor.scalar_type()));
    }
}

const char* kind_name(OpKind kind) {
    switch (kind) {
        case OpKind::AllGather:
            return "all-gather";
        case OpKind::ReduceScatter:
            return "reduce-scatter";
        case OpKind::AllReduce:
            return "all-reduce";
        case OpKind::Broadcast:
            return "broadcast";
        case OpKind::Send:
            return "send";
        case OpKind::Receive:
            return "receive";
    }
    return "";
}

// A rank that waits yields at first, since an answer that is due costs least that way. When it stays away,
// the rank sleeps between looks, and leaves its core to ranks that may be at work on the answer: with more
// ranks than cores a step takes up to a third less, with a core for each the same.
constexpr double kYieldingSeconds = 1e-3;
constexpr std::chrono::microseconds kSleep(100);

class MpiCompletion : public Completion {
  public:
    MpiCompletion(std::vector<mpi::Request> requests, std::string what, double timeout_seconds)
        : requests_(std::move(requests)), what_(std::move(what)), timeout_seconds_(timeout_seconds) {}

    void wait() override {
        const double start = seconds_now();
        while (!mpi::test_all(requests_)) {
            const double waited = seconds_now() - start;
            if (waited > timeout_seconds_) {
                throw TimeoutError(
                    "{}: no answer in {} s. A peer is dead, stuck or much slower; its own message, if "
                    "any, says why (comm.train_timeout_seconds sets the limit)",
                    what_, timeout_seconds_);
            }
            if (waited < kYieldingSeconds) {
                sched_yield();
            } else {
                std::this_thread::sleep_for(kSleep);
            }
        }
    }

  private:
    std::vector<mpi::Request> requests_;
    std::string what_;
    double timeout_seconds_;
};

void check_shapes(const Op& op, int size) {
    for (const at::Tensor* tensor : {&op.out, &op.in}) {
        ARGOSY_CHECK(!tensor->defined() || tensor->is_contiguous(), "{} of a strided tensor",
                     kind_name(op.kind));
    }
    if (op.kind == OpKind::AllGather) {
        ARGOSY_CHECK(op.out.numel() == op.in.numel() * size, "{} from {} on {}", op.out.numel(),
                     op.in.numel(), size);
    }
    if (op.kind == OpKind::ReduceScatter) {
        ARGOSY_CHECK(op.in.numel() == op.out.numel() * size, "{} from {} on {}", op.out.numel(),
                     op.in.numel(), size);
    }
    if (op.in.defined() && op.out.defined()) ARGOSY_CHECK(op.in.scalar_type() == op.out.scalar_type());
}

}  // namespace

MpiCommunicator::MpiCommunicator(mpi::Comm comm, std::string name, MpiOptions options)
    : Communicator(std::move(name)),
      comm_(std::move(comm)),
      options_(options),
      rank_(comm_.rank()),
      size_(comm_.size()) {}

std::unique_ptr<Communicator> MpiCommunicator::subgroup(std::span<const int> ranks, std::string name) const {
    return std::make_unique<MpiCommunicator>(comm_.subgroup(ranks), std::move(name), options_);
}

mpi::Request MpiCommunicator::start(const Op& op) const {
    check_shapes(op, size_);
    const auto reduction = op.reduction == Reduction::Sum ? mpi::Reduction::Sum : mpi::Reduction::Max;
    const mpi::Type type = element_type(op.out.defined() ? op.out : op.in);
    void* out = op.out.defined() ? op.out.mutable_data_ptr() : nullptr;
    const void* in = op.in.defined() ? op.in.const_data_ptr() : nullptr;
    switch (op.kind) {
        case OpKind::AllGather:
            return comm_.all_gather(out, in, op.in.numel(), type);
        case OpKind::ReduceScatter:
            return comm_.reduce_scatter(out, in, op.out.numel(), type, reduction);
        case OpKind::AllReduce:
            return comm_.all_reduce(out, in, op.out.numel(), type, reduction);
        case OpKind::Broadcast:
            return comm_.broadcast(out, op.out.numel(), type, op.peer);
        case OpKind::Send:
            return comm_.send(in, op.in.numel(), type, op.peer, options_.synchronous_sends);
        case OpKind::Receive:
            return comm_.receive(out, op.out.numel(), type, op.peer);
    }
    throw RunError("internal error: unknown operation");
}

Pending MpiCommunicator::submit(std::span<const Op> ops) {
    std::vector<mpi::Request> requests;
    std::vector<at::Tensor> tensors;
    for (const Op& op : ops) {
        requests.push_back(start(op));
        if (op.out.defined()) tensors.push_back(op.out);
        if (op.in.defined()) tensors.push_back(op.in);
    }
    std::string what =
        fmt::format("{} over {} (operation {}, {} ranks)", ops.empty() ? "" : kind_name(ops[0].kind), name(),
                    num_submitted_++, size_);
    return Pending(
        std::make_unique<MpiCompletion>(std::move(requests), std::move(what), options_.timeout_seconds),
        std::move(tensors), exposed_seconds_slot());
}

}  // namespace argosy::comm
