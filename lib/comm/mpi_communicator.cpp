#include "comm/mpi_communicator.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <numeric>
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

/// Waiting for an answer, look by look. Counts the time that this process has looked for it: between two
/// looks it may have stood still itself, stopped by a signal or suspended by Slurm with all its peers; such a
/// gap says nothing about them and counts little.
class Patience {
  public:
    explicit Patience(double limit_seconds) : limit_seconds_(limit_seconds) {}

    /// Lets a moment pass between two looks; false when patience is at an end.
    ///
    /// A rank that waits yields at first, since an answer that is due costs least that way. When it stays
    /// away, the rank sleeps, and leaves its core to ranks that may be at work on the answer: with more ranks
    /// than cores a step takes up to a third less, with a core for each the same.
    bool pause() {
        const double now = seconds_now();
        waited_seconds_ += std::min(now - last_look_, kMostSecondsBetweenLooks);
        last_look_ = now;
        if (waited_seconds_ > limit_seconds_) return false;
        if (waited_seconds_ < kYieldingSeconds) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(kSleep);
        }
        return true;
    }

  private:
    static constexpr double kMostSecondsBetweenLooks = 1;  // on a machine with far more ranks than cores
    static constexpr double kYieldingSeconds = 1e-3;
    static constexpr std::chrono::microseconds kSleep{100};
    double limit_seconds_;
    double waited_seconds_ = 0;
    double last_look_ = seconds_now();
};

class MpiCompletion : public Completion {
  public:
    MpiCompletion(std::string what, double timeout_seconds)
        : what_(std::move(what)), timeout_seconds_(timeout_seconds) {}

    void add(mpi::Request request) { requests_.push_back(request); }

    void wait() override {
        Patience patience(timeout_seconds_);
        while (!mpi::test_all(requests_)) {
            if (patience.pause()) continue;
            throw TimeoutError(
                "{}: no answer in {} s. A peer is dead, stuck or much slower; its own message, if any, says "
                "why "
                "(comm.train_timeout_seconds sets the limit)",
                what_, timeout_seconds_);
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
      size_(comm_.size()),
      members_(size_) {
    std::iota(members_.begin(), members_.end(), 0);
}

std::unique_ptr<Communicator> MpiCommunicator::subgroup(std::span<const int> ranks, std::string name) const {
    auto group = std::make_unique<MpiCommunicator>(comm_.subgroup(ranks), std::move(name), options_);
    std::transform(ranks.begin(), ranks.end(), group->members_.begin(),
                   [&](int rank) { return members_[rank]; });
    return group;
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

// The Pending comes first: should an operation be refused, those before it have started and need their
// tensors.
Pending MpiCommunicator::submit(std::span<const Op> ops) {
    std::vector<at::Tensor> tensors;
    for (const Op& op : ops) {
        if (op.out.defined()) tensors.push_back(op.out);
        if (op.in.defined()) tensors.push_back(op.in);
    }
    auto completion = std::make_unique<MpiCompletion>(describe(ops), options_.timeout_seconds);
    MpiCompletion& started = *completion;
    Pending pending(std::move(completion), std::move(tensors), exposed_seconds_slot());
    for (const Op& op : ops) started.add(start(op));
    ++num_submitted_;
    return pending;
}

std::string MpiCommunicator::describe(std::span<const Op> ops) const {
    constexpr size_t kMostNamed = 16;
    const auto named = std::span(members_).first(std::min(members_.size(), kMostNamed));
    return fmt::format("{} over {} (operation {}; ranks {}{})",
                       ops.empty() ? "nothing" : kind_name(ops[0].kind), name(), num_submitted_,
                       fmt::join(named, ", "), named.size() < members_.size() ? ", ..." : "");
}

}  // namespace argosy::comm
