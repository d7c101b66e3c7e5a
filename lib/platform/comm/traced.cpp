#include "comm/traced.h"

#include <fmt/format.h>

namespace argosy::comm {
namespace {

/// A wait for operations of a group, and the end of their flight.
class TracedWait : public Completion {
  public:
    TracedWait(Pending pending, Timeline& timeline, std::string name, uint64_t launch)
        : pending_(std::move(pending)), timeline_(timeline), name_(std::move(name)), launch_(launch) {}
    void wait() override {
        const Timeline::Span span(timeline_, name_);
        pending_.wait();
        timeline_.landed(launch_);
    }

  private:
    Pending pending_;
    Timeline& timeline_;
    std::string name_;
    uint64_t launch_;
};

/// "all-gather of wo": the first operation.
std::string kind_and_work(std::span<const Op> ops) {
    const std::string work = ops[0].purpose.work;
    return kind_name(ops[0].kind) + (work.empty() ? "" : " of " + work);
}

/// "tp all-gather of wo, 12.3 MB": the first operation and the bytes of all.
std::string launch_name(const std::string& group, std::span<const Op> ops) {
    double bytes = 0;
    for (const Op& op : ops) bytes += static_cast<double>((op.out.defined() ? op.out : op.in).nbytes());
    return fmt::format("{} {}, {:.4g} MB", group, kind_and_work(ops), bytes / 1e6);
}

}  // namespace

std::unique_ptr<Communicator> TracedCommunicator::subgroup(std::span<const int> ranks,
                                                           std::string name) const {
    return std::make_unique<TracedCommunicator>(inner_->subgroup(ranks, std::move(name)), timeline_);
}

Pending TracedCommunicator::noted(Submit start, std::span<const Op> ops) {
    if (ops.empty() || !timeline_.takes_spans()) return (*inner_.*start)(ops);
    const std::string name = launch_name(this->name(), ops);
    const Timeline::Span span(timeline_, "submit " + name);
    const uint64_t launch = timeline_.launched(name);
    std::string wait = fmt::format("wait {}, {}", this->name(), kind_and_work(ops));
    return Pending(std::make_unique<TracedWait>((*inner_.*start)(ops), timeline_, std::move(wait), launch),
                   /*tensors=*/{}, /*exposed_seconds=*/nullptr);
}

void TracedCommunicator::wait_for_gpu() {
    const Timeline::Span span(timeline_, "wait for the GPU");
    inner_->wait_for_gpu();
}

void TracedCommunicator::launch_graph(const std::string& what, const std::function<uint64_t()>& launch) {
    const Timeline::Span span(timeline_, "launch " + what);
    inner_->launch_graph(what, launch);
}

}  // namespace argosy::comm
