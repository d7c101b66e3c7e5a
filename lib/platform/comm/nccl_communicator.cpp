#include "comm/nccl_communicator.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cuda/device.h"
#include "gpu/device.h"

namespace argosy::comm {
namespace {

cuda::StreamView current_stream() { return cuda::StreamView(gpu::current_stream()); }

/// Puts one operation on the lane's stream. `peer` is a rank number within the lane.
void start(const Op& op, const watch::Lane& lane, int peer) {
    const ElementType type = element_type(op);
    void* out = op.out.defined() ? op.out.mutable_data_ptr() : nullptr;
    const void* in = op.in.defined() ? op.in.const_data_ptr() : nullptr;
    const nccl::Comm& ranks = *lane.communicator;
    switch (op.kind) {
        case OpKind::AllGather:
            return ranks.all_gather(out, in, op.in.numel(), type, lane.stream);
        case OpKind::ReduceScatter:
            return ranks.reduce_scatter(out, in, op.out.numel(), type, op.reduction, lane.stream);
        case OpKind::AllReduce:
            return ranks.all_reduce(out, in, op.out.numel(), type, op.reduction, lane.stream);
        case OpKind::Broadcast:
            return ranks.broadcast(out, out, op.out.numel(), type, peer, lane.stream);
        case OpKind::AllToAll:
            for (const Op& message : messages_of(op)) start(message, lane, message.peer);
            return;
        case OpKind::Send:
            return ranks.send(in, op.in.numel(), type, peer, lane.stream);
        case OpKind::Receive:
            return ranks.receive(out, op.out.numel(), type, peer, lane.stream);
    }
}

class NcclCompletion : public Completion {
  public:
    NcclCompletion(std::shared_ptr<watch::GpuState> gpu, std::shared_ptr<cuda::StreamTimes> exposed,
                   std::vector<cuda::PooledEvent> ends, std::vector<std::shared_ptr<watch::Lane>> lanes)
        : gpu_(std::move(gpu)),
          exposed_(std::move(exposed)),
          ends_(std::move(ends)),
          lanes_(std::move(lanes)) {
        for (const auto& lane : lanes_) gpu_->submitted(*lane);
    }
    ~NcclCompletion() override {
        for (const auto& lane : lanes_) gpu_->awaited(*lane);
    }

    void wait() override {
        gpu_->run_unless_ending([this] { put_on_stream(); });
    }

  private:
    void put_on_stream() {
        const cuda::StreamView compute = current_stream();
        const uint64_t graph = compute.captured_by();
        const cuda::PooledEvent before = gpu_->clocks.take(), after = gpu_->clocks.take();
        const auto mark = [&](cuda::Event& event) {
            graph == 0 ? event.record(compute) : event.record_at_each_launch(compute);
        };
        mark(*before);
        for (const cuda::PooledEvent& end : ends_) compute.wait(*end);
        mark(*after);
        exposed_->add(graph, before, after);
    }

    std::shared_ptr<watch::GpuState> gpu_;
    std::shared_ptr<cuda::StreamTimes> exposed_;
    std::vector<cuda::PooledEvent> ends_;
    std::vector<std::shared_ptr<watch::Lane>> lanes_;
};

/// The result is computed on the current stream itself, so there is nothing to wait for.
class DoneOnStream : public Completion {
    void wait() override {}
};

/// A group of one rank only copies the input to the output.
Pending copy_alone(std::span<const Op> ops) {
    for (const Op& op : ops) {
        if (op.in.defined() && op.in.const_data_ptr() != op.out.const_data_ptr()) {
            op.out.view(-1).copy_(op.in.view(-1), /*non_blocking=*/true);
        }
    }
    return Pending(std::make_unique<DoneOnStream>(), tensors_of(ops), nullptr);
}

/// Returns the edges of the ring of ranks in the order in which all ranks make lanes on them. An edge has the
/// number of its first rank. The even edges come before the odd ones, so that edges without a common rank
/// connect at the same time. In a ring of odd size, the last edge comes alone at the end.
std::vector<int> edges_in_order(int size) {
    std::vector<int> edges;
    const int num_edges = size == 2 ? 1 : size;
    const int last = num_edges % 2 == 1 && num_edges > 1 ? num_edges - 1 : num_edges;
    for (const int parity : {0, 1}) {
        for (int edge = parity; edge < last; edge += 2) edges.push_back(edge);
    }
    if (last < num_edges) edges.push_back(last);
    return edges;
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<const Group> group, std::unique_ptr<Communicator> host)
    : GroupCommunicator(std::move(group)), host_(std::move(host)) {}

NcclCommunicator::~NcclCommunicator() {
    if (std::uncaught_exceptions() == 0) {
        close_peers();
        return;
    }
    // leave() comes first, so that other ranks' watchdogs expect the NCCL errors that the aborts below cause
    // there.
    group_->watchdog().leave();
    std::vector<std::shared_ptr<watch::Lane>> lanes;
    for (const auto& lane : {others_, reductions_}) {
        if (lane) lanes.push_back(lane);
    }
    for (const auto& [neighbour, lane] : channels_) lanes.push_back(lane);
    watch::abort_all(lanes);
}

std::vector<nccl::UniqueId> NcclCommunicator::ids_of_all(std::span<const nccl::UniqueId> own) const {
    const auto bytes = static_cast<int64_t>(own.size_bytes());
    const at::Tensor mine = at::empty({bytes}, at::kByte), all = at::empty({bytes * size()}, at::kByte);
    std::memcpy(mine.mutable_data_ptr(), own.data(), own.size_bytes());
    host_->run({.kind = OpKind::AllGather, .out = all, .in = mine});
    std::vector<nccl::UniqueId> ids(own.size() * size());
    std::memcpy(ids.data(), all.const_data_ptr(), all.nbytes());
    return ids;
}

std::shared_ptr<watch::Lane> NcclCommunicator::make_lane(const nccl::UniqueId& id, std::vector<int> members,
                                                         int rank, int max_channels,
                                                         bool copy_engines) const {
    if (current_stream().is_captured()) {
        throw RunError(
            "internal error: the first operation of its kind over {} was submitted while a graph is recorded",
            name());
    }
    const watch::HostWait wait(group_->watchdog().waits(),
                               group_->awaited_making("NCCL's communicator over " + name(), name(), members),
                               watch::HostWait::Kind::Blocks);
    const auto size = static_cast<int>(members.size());
    watch::GpuState::Made& made = group_->gpu()->made;
    const size_t before = cuda::free_memory_bytes();
    auto lane = std::make_shared<watch::Lane>(id, size, rank, max_channels, copy_engines,
                                              group_->gpu()->open_queue(name(), members));
    group_->gpu()->add(lane);
    ++made.number;
    const size_t after = cuda::free_memory_bytes();
    made.bytes += static_cast<int64_t>(before) - static_cast<int64_t>(after);
    spdlog::debug("NCCL's communicator over {}, {} ranks: {:.0f} MiB of the GPU were free, {:.0f} are",
                  name(), size, static_cast<double>(before) / kMebi, static_cast<double>(after) / kMebi);
    return lane;
}

const std::shared_ptr<watch::Lane>& NcclCommunicator::collective_lane(bool reduces) {
    std::shared_ptr<watch::Lane>& lane = reduces ? reductions_ : others_;
    if (!lane) {
        nccl::UniqueId id = {};
        if (rank() == 0) id = nccl::make_unique_id();
        lane = make_lane(ids_of_all({&id, 1})[0], group_->members(), rank(),
                         group_->options().collective_channels,
                         /*copy_engines=*/!reduces && group_->options().registered_memory);
    }
    return lane;
}

void NcclCommunicator::open_collectives(Collectives kinds) {
    if (size() == 1) return;
    group_->gpu()->run_unless_ending([&] {
        if (kinds != Collectives::Others) collective_lane(/*reduces=*/true);
        if (kinds != Collectives::Reductions) collective_lane(/*reduces=*/false);
    });
}

at::Tensor NcclCommunicator::make_tensor(Collectives kind, at::IntArrayRef shape,
                                         const at::TensorOptions& options) {
    if (!group_->options().registered_memory || size() == 1)
        return Communicator::make_tensor(kind, shape, options);
    ARGOSY_CHECK(kind != Collectives::All, "a tensor of operations of several kinds");
    return group_->gpu()->run_unless_ending([&] {
        const bool reduces = kind == Collectives::Reductions;
        auto& segments = reduces ? registered_for_reductions_ : registered_for_others_;
        if (!segments) segments = std::make_shared<RegisteredSegments>(collective_lane(reduces));
        if (segments->has_room(shape, options)) return segments->make(shape, options);
        const watch::HostWait wait(
            group_->watchdog().waits(),
            group_->awaited_making("registered memory over " + name(), name(), group_->members()),
            watch::HostWait::Kind::Blocks);
        const int64_t before = segments->num_bytes();
        at::Tensor made = segments->make(shape, options);
        watch::GpuState::Made& all = group_->gpu()->made;
        (segments->registered() ? all.registered_bytes : all.refused_bytes) += segments->num_bytes() - before;
        return made;
    });
}

void NcclCommunicator::open_channels() {
    if (size() == 1 || !channels_.empty()) return;
    group_->gpu()->run_unless_ending([this] { make_channels(); });
}

void NcclCommunicator::make_channels() {
    const std::vector<nccl::UniqueId> ids =
        ids_of_all(std::vector{nccl::make_unique_id(), nccl::make_unique_id()});
    const int limit = group_->options().message_channels;
    for (const int edge : edges_in_order(size())) {
        const int from = edge, to = (edge + 1) % size();
        if (rank() != from && rank() != to) continue;
        const bool forth = rank() == from;
        const int neighbour = forth ? to : from;
        // Rank 0 of a lane sends.
        channels_[{neighbour, forth ? Direction::Out : Direction::In}] =
            make_lane(ids[2 * edge], {group_->members()[from], group_->members()[to]}, forth ? 0 : 1, limit);
        channels_[{neighbour, forth ? Direction::In : Direction::Out}] = make_lane(
            ids[2 * edge + 1], {group_->members()[to], group_->members()[from]}, forth ? 1 : 0, limit);
    }
}

const std::shared_ptr<watch::Lane>& NcclCommunicator::lane_of(const Op& op) {
    if (!is_message(op)) return collective_lane(is_reduction(op));
    const auto found = channels_.find({op.peer, op.kind == OpKind::Send ? Direction::Out : Direction::In});
    ARGOSY_CHECK(found != channels_.end(), "{} between ranks {} and {} of {} without a channel",
                 kind_name(op.kind), rank(), op.peer, name());
    return found->second;
}

std::vector<NcclCommunicator::LaneOps> NcclCommunicator::by_lane(std::span<const Op> ops) {
    std::vector<LaneOps> lanes;
    for (const Op& op : ops) {
        const std::shared_ptr<watch::Lane>& lane = lane_of(op);
        const auto found = std::ranges::find(lanes, lane, &LaneOps::lane);
        LaneOps& entry = found != lanes.end() ? *found : lanes.emplace_back(LaneOps{lane, {}});
        entry.ops.push_back(&op);
    }
    return lanes;
}

/// Puts the operations of lanes with an NCCL communicator on their streams as one NCCL group.
void NcclCommunicator::start_all(const std::vector<LaneOps>& lanes) const {
    nccl::launch_together([&] {
        for (const auto& [lane, ops] : lanes) {
            if (!lane->communicator) continue;
            for (const Op* op : ops)
                start(*op, *lane, is_message(*op) ? 1 - lane->communicator->rank() : op->peer);
        }
    });
    if (std::ranges::any_of(lanes, [](const LaneOps& one) { return !one.lane->communicator; }))
        start_copies(lanes);
}

/// Launches the operations of all lanes. Returns the events that mark their ends.
std::vector<cuda::PooledEvent> NcclCommunicator::launch(const std::vector<LaneOps>& lanes) const {
    watch::GpuState& gpu = *group_->gpu();
    const cuda::StreamView compute = current_stream();
    const uint64_t graph = compute.captured_by();
    const cuda::PooledEvent ready = gpu.marks.mark(compute);
    std::vector<cuda::PooledEvent> begins, ends;
    for (const auto& [lane, ops] : lanes) {
        cuda::StreamView(lane->stream).wait(*ready);
        watch::LaunchQueue::Work work{kind_name(ops[0]->kind)};
        watch::FlightSpan flight;
        for (const Op* op : ops) {
            work.elements += num_elements(*op);
            group_->record(*op, flight,
                           graph == 0 ? watch::FlightState::UnderWay : watch::FlightState::InGraph);
        }
        if (graph != 0) {
            gpu.record(*lane, std::move(work), graph);
            continue;
        }
        lane->queue->begin(std::move(work), flight);
        begins.push_back(gpu.marks.mark(lane->stream));
    }
    start_all(lanes);
    for (size_t i = 0; i < lanes.size(); ++i) {
        const watch::Lane& lane = *lanes[i].lane;
        if (graph != 0) gpu.recorded(lane, graph);
        ends.push_back(gpu.marks.mark(lane.stream));
        if (graph == 0) lane.queue->launched(begins[i], ends[i]);
    }
    return ends;
}

Pending NcclCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return {};
    if (!on_gpu(ops)) return host_->submit(ops);
    for (const Op& op : ops) check(op, *this);
    if (size() == 1) return copy_alone(ops);
    return group_->gpu()->run_unless_ending([&] {
        collect_exposed();
        const std::vector<LaneOps> by_lanes = by_lane(ops);
        std::vector<std::shared_ptr<watch::Lane>> lanes;
        for (const LaneOps& each : by_lanes) lanes.push_back(each.lane);
        std::vector<cuda::PooledEvent> ends = launch(by_lanes);
        return Pending(
            std::make_unique<NcclCompletion>(group_->gpu(), exposed_, std::move(ends), std::move(lanes)),
            tensors_of(ops), nullptr);
    });
}

void NcclCommunicator::wait_for_gpu() {
    group_->gpu()->run_unless_ending([&] {
        const cuda::PooledEvent end = group_->gpu()->marks.mark(current_stream());
        PollTimer timer(std::numeric_limits<double>::infinity());
        while (!end->done()) {
            if (!group_->exchanges().advance()) timer.pause();
        }
        group_->gpu()->block_if_ending();
    });
}

void NcclCommunicator::launch_graph(const std::string& what, const std::function<uint64_t()>& launch) {
    if (size() == 1) {
        launch();
        return;
    }
    group_->gpu()->run_unless_ending([&] {
        watch::GpuState& gpu = *group_->gpu();
        if (!graph_calls_) graph_calls_ = gpu.open_queue(name(), group_->members());
        gpu.graph_begins(current_stream(), group_->record_launch(what));
        graph_calls_->begin({what});
        const uint64_t graph = launch();
        graph_calls_->returned();
        gpu.graph_launched(graph, gpu.marks.mark(current_stream()));
    });
}

void NcclCommunicator::collect_exposed() const {
    watch::GpuState& gpu = *group_->gpu();
    if (current_stream().is_captured()) return;
    exposed_->collect();
    if (gpu.graph_under_way()) return;
    exposed_->collect_recorded([&](uint64_t graph) { return gpu.num_launches(graph); });
}

double NcclCommunicator::exposed_seconds() const {
    if (size() > 1) group_->gpu()->run_unless_ending([&] { collect_exposed(); });
    return exposed_->seconds() + host_->exposed_seconds();
}

double NcclCommunicator::exposed_seconds_of(int label) const {
    if (size() > 1) group_->gpu()->run_unless_ending([&] { collect_exposed(); });
    return exposed_->seconds(label);
}

}  // namespace argosy::comm
