#include "comm/traced.h"

#include <fmt/format.h>

#include <numeric>

#include "base/error.h"
#include "base/random.h"

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

std::vector<int> numbers_below(int size) {
    std::vector<int> numbers(size);
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
}

}  // namespace

TracedCommunicator::TracedCommunicator(std::unique_ptr<Communicator> world, Timeline& timeline)
    : TracedCommunicator(std::move(world), timeline, numbers_below(world->size()), /*number=*/0) {}

TracedCommunicator::TracedCommunicator(std::unique_ptr<Communicator> inner, Timeline& timeline,
                                       std::vector<int> world_ranks, int number)
    : Communicator(inner->name(), inner->device()),
      inner_(std::move(inner)),
      timeline_(timeline),
      world_ranks_(std::move(world_ranks)),
      number_(number) {}

std::unique_ptr<Communicator> TracedCommunicator::subgroup(std::span<const int> ranks,
                                                           std::string name) const {
    std::vector<int> world_ranks;
    for (const int rank : ranks) world_ranks.push_back(world_ranks_[rank]);
    const int number = ++num_subgroups_[world_ranks];
    return std::unique_ptr<TracedCommunicator>(new TracedCommunicator(
        inner_->subgroup(ranks, std::move(name)), timeline_, std::move(world_ranks), number));
}

uint64_t TracedCommunicator::flow_id(int from, int to, uint64_t count) const {
    Fnv sum;  // of what all ranks of the group know
    for (const int rank : world_ranks_) sum.add(rank);
    for (const int value : {number_, from, to}) sum.add(value);
    sum.add(static_cast<int64_t>(count));
    return sum.hash();
}

/// Messages flow from their sender to their receiver, collectives from the first rank to the last.
void TracedCommunicator::note_flows(std::span<const Op> ops) {
    using enum Timeline::FlowEnd;
    bool has_collective = false;
    for (const Op& op : ops) {
        if (!is_message(op)) {
            has_collective = true;
            continue;
        }
        const bool sends = op.kind == OpKind::Send;
        const std::pair way = sends ? std::pair(rank(), op.peer) : std::pair(op.peer, rank());
        const uint64_t count = num_messages_[way]++;
        timeline_.flow(flow_id(way.first, way.second, count), sends ? First : Last);
    }
    if (!has_collective) return;
    const uint64_t count = num_messages_[{-1, -1}]++;
    if (size() == 1) return;
    timeline_.flow(flow_id(-1, -1, count), rank() == 0 ? First : rank() + 1 == size() ? Last : Middle);
}

Pending TracedCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return inner_->submit(ops);
    const bool noted = timeline_.takes_spans();
    const std::string name = noted ? launch_name(this->name(), ops) : "";
    const Timeline::Span span(timeline_, "submit " + name);
    note_flows(ops);  // also counts the messages of steps that are not recorded
    if (!noted) return inner_->submit(ops);
    const uint64_t launch = timeline_.launched(name);
    std::string wait = fmt::format("wait {}, {}", this->name(), kind_and_work(ops));
    return Pending(std::make_unique<TracedWait>(inner_->submit(ops), timeline_, std::move(wait), launch),
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
