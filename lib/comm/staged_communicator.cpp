#include "comm/staged_communicator.h"

#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "cuda/stream.h"
#include "gpu/device.h"

namespace argosy::comm {
namespace {

struct Result {
    at::Tensor on_gpu, on_host;
};

/// Counts the time of its copies as exposed time; the host's backend counts its part.
class StagedCompletion : public Completion {
  public:
    StagedCompletion(Pending sent, std::vector<Result> results, double* exposed_seconds)
        : sent_(std::move(sent)), results_(std::move(results)), exposed_seconds_(exposed_seconds) {}

    void wait() override {
        sent_.wait();
        const double start = seconds_now();
        for (const Result& result : results_) result.on_gpu.copy_(result.on_host);
        *exposed_seconds_ += seconds_now() - start;
    }

  private:
    Pending sent_;
    std::vector<Result> results_;
    double* exposed_seconds_;
};

at::Tensor room_on_host(const at::Tensor& like) {
    return at::empty(like.sizes(), like.options().device(at::kCPU));
}

at::Tensor copy_on_host(const at::Tensor& tensor) {
    at::Tensor copy = room_on_host(tensor);
    copy.copy_(tensor);
    return copy;
}

}  // namespace

StagedCommunicator::StagedCommunicator(std::shared_ptr<const Group> group, std::unique_ptr<Communicator> host)
    : GroupCommunicator(std::move(group)), host_(std::move(host)) {}

Pending StagedCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return {};
    if (!on_gpu(ops)) return host_->submit(ops);
    ARGOSY_CHECK(!cuda::StreamView(gpu::current_stream()).is_captured(),
                 "operations over {} go through the host's memory and cannot be recorded into a graph",
                 name());
    const double start = seconds_now(), counted = host_->exposed_seconds();
    std::vector<Op> staged;
    std::vector<Result> results;
    for (const Op& op : ops) {
        check(op, size());
        Op& copy = staged.emplace_back(op);
        if (op.in.defined()) copy.in = copy_on_host(op.in);
        if (!op.out.defined()) continue;
        // A broadcast's buffer is its root's input.
        copy.out = op.kind == OpKind::Broadcast ? copy_on_host(op.out) : room_on_host(op.out);
        results.push_back({op.out, copy.out});
    }
    auto completion =
        std::make_unique<StagedCompletion>(host_->submit(staged), std::move(results), exposed_seconds_slot());
    *exposed_seconds_slot() += seconds_now() - start - (host_->exposed_seconds() - counted);
    return Pending(std::move(completion), tensors_of(ops), nullptr);
}

}  // namespace argosy::comm
