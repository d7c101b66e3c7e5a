#include "watch/launch_queue.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "watch/report.h"

namespace argosy::watch {
namespace {

constexpr int64_t kNumMarkValues = 65535;

/// An operation takes two marks. Half a block has more marks than any useful graph needs.
constexpr size_t kMarksPerBlock = size_t{1} << 19;

/// The value of the marks that the GPU sets in `launch`.
GraphMark value_in(int64_t launch) { return static_cast<GraphMark>(launch % kNumMarkValues + 1); }

}  // namespace

LaunchQueue::LaunchQueue(std::string name, std::vector<int> members, int serial)
    : key_(group_key(name, members, serial)), name_(std::move(name)), members_(std::move(members)) {}

void LaunchQueue::begin(Work work, const FlightSpan& flight) {
    const std::lock_guard lock(mutex_);
    const int64_t number = num_begun_++;
    last_ = {work, {0, number}, seconds_now()};
    launches_.push_back({number, std::move(work), flight, nullptr, nullptr});
}

void LaunchQueue::launched(cuda::PooledEvent begin, cuda::PooledEvent end) {
    const std::lock_guard lock(mutex_);
    launches_.back().begin = std::move(begin);
    launches_.back().end = std::move(end);
}

void LaunchQueue::returned() {
    const std::lock_guard lock(mutex_);
    launches_.pop_back();
    waited_seconds_ = 0;
}

void LaunchQueue::record(uint64_t graph, Work work, const GraphMark* begun) {
    const std::lock_guard lock(mutex_);
    recorded_[graph].push_back({std::move(work), begun, nullptr});
}

void LaunchQueue::recorded(uint64_t graph, const GraphMark* done) {
    const std::lock_guard lock(mutex_);
    recorded_[graph].back().done = done;
}

void LaunchQueue::graph_begins(int64_t launch, const FlightSpan& flight) {
    const std::lock_guard lock(mutex_);
    num_graphs_ = launch;
    graphs_.push_back({launch, num_begun_, last_, flight, nullptr});
}

void LaunchQueue::graph_launched(cuda::PooledEvent end) {
    const std::lock_guard lock(mutex_);
    if (!graphs_.empty()) graphs_.back().end = std::move(end);
}

LaunchQueue::QueueState LaunchQueue::poll(double elapsed_seconds) {
    drop_ended_launches();
    drop_ended_graphs();
    const bool begun = oldest_has_begun();
    const std::lock_guard lock(mutex_);
    QueueState state;
    state.key = key_;
    state.name = name_;
    state.members = members_;
    state.num_begun = num_begun_;
    waited_seconds_ = begun ? waited_seconds_ + elapsed_seconds : 0;
    if (begun && !launches_.empty()) {
        const Launch& oldest = launches_.front();
        state.under_way = {{0, oldest.number}, oldest.work, waited_seconds_};
    }
    poll_graphs(elapsed_seconds, state);
    return state;
}

// The following functions query CUDA without the lock, because CUDA may never answer and the launching thread
// needs the lock. Only the watchdog's thread removes launches at the front.

void LaunchQueue::drop_ended_launches() {
    for (;;) {
        cuda::PooledEvent end;
        {
            const std::lock_guard lock(mutex_);
            if (!launches_.empty()) end = launches_.front().end;
        }
        if (!end || !end->done()) return;
        const std::lock_guard lock(mutex_);
        launches_.front().flight.set_ended();
        launches_.pop_front();
        waited_seconds_ = 0;
    }
}

void LaunchQueue::drop_ended_graphs() {
    for (;;) {
        cuda::PooledEvent end;
        {
            const std::lock_guard lock(mutex_);
            if (graphs_.empty()) return;
            poll_oldest_graph();
            end = graphs_.front().end;
        }
        if (!end || !end->done()) return;
        const std::lock_guard lock(mutex_);
        poll_oldest_graph();
        graphs_.front().flight.set_ended();
        graphs_.pop_front();
    }
}

/// Whether the GPU has reached the oldest launch, or its launching call has not returned. Until the GPU
/// reaches it, a launch waits for earlier work on this rank's own GPU.
bool LaunchQueue::oldest_has_begun() {
    cuda::PooledEvent begin;
    {
        const std::lock_guard lock(mutex_);
        if (launches_.empty()) return false;
        begin = launches_.front().begin;
        if (!begin) return true;  // the launching call has not returned
    }
    return begin->done();
}

/// Returns the last operation that the GPU has reached in launch `launch` of a graph, and stores its index in
/// `number`. Returns null if the GPU has reached none. One stream runs all recorded operations in order.
const LaunchQueue::Recorded* LaunchQueue::last_begun(int64_t launch, int64_t* number) const {
    for (const auto& [graph, operations] : recorded_) {
        const auto begun = [&](const Recorded& one) { return GraphProgress::is_set_by(one.begun, launch); };
        if (!begun(operations.front())) continue;
        const auto next = std::ranges::find_if_not(operations, begun);
        *number = next - operations.begin() - 1;
        return &operations[*number];
    }
    return nullptr;
}

/// Returns the last operation that the GPU has reached in the oldest launch of a graph, and updates seen_.
const LaunchQueue::Recorded* LaunchQueue::poll_oldest_graph() {
    LaunchId id{graphs_.front().launch, 0};
    const Recorded* const operation = last_begun(id.graph, &id.number);
    if (operation && seen_.id != id) seen_ = {operation->work, id, seconds_now()};
    return operation;
}

void LaunchQueue::poll_graphs(double elapsed_seconds, QueueState& state) {
    const Recorded* operation = graphs_.empty() ? nullptr : poll_oldest_graph();
    const LaunchId id = seen_.id;
    const Last* last = &last_;
    if (graphs_.empty()) {
        state.graph = {num_graphs_ + 1, 0};
    } else {
        state.graph = {graphs_.front().launch, operation ? id.number + 1 : 0};
        state.num_begun = graphs_.front().num_begun;
        last = &graphs_.front().last;
    }
    if (seen_.at_seconds > last->at_seconds) last = &seen_;
    state.last = last->work;
    state.last_id = last->id;
    state.seconds_since_last = seconds_now() - last->at_seconds;

    const GraphMark* const done = operation ? operation->done : nullptr;
    if (done && GraphProgress::is_set_by(done, id.graph)) operation = nullptr;
    if (!operation || waited_id_ != id) graph_waited_seconds_ = 0;
    if (!operation) return;
    waited_id_ = id;
    graph_waited_seconds_ += elapsed_seconds;
    if (state.under_way && state.under_way->waited_seconds > graph_waited_seconds_) return;
    state.under_way = {id, operation->work, graph_waited_seconds_};
}

GraphProgress::GraphProgress() : values_(kNumMarkValues * sizeof(GraphMark)), current_(sizeof(GraphMark)) {
    std::vector<GraphMark> values(kNumMarkValues);
    std::iota(values.begin(), values.end(), GraphMark{1});
    const cuda::Stream stream;
    cuda::copy_to_device(values_.data(), std::as_bytes(std::span(values)), stream);
    cuda::set_to_zero(current_.data(), current_.bytes(), stream);
    stream.synchronize();
    require_room();
}

void GraphProgress::require_room() {
    if (!blocks_.empty() && num_taken_ <= kMarksPerBlock / 2) return;
    const cuda::PinnedMemory& added = blocks_.emplace_back(kMarksPerBlock * sizeof(GraphMark));
    std::memset(added.data(), 0, added.bytes());
    num_taken_ = 0;
}

void GraphProgress::begin_launch(int64_t launch, const cuda::StreamView& stream) {
    require_room();
    const std::byte* const value = values_.data() + (value_in(launch) - 1) * sizeof(GraphMark);
    cuda::copy_on_device(current_.data(), value, sizeof(GraphMark), stream);
}

const GraphMark* GraphProgress::add_mark(const cuda::Stream& stream) {
    if (num_taken_ == kMarksPerBlock) {
        throw RunError(
            "a graph has more than {} operations between GPUs, which is more than the watchdog can watch: "
            "use fewer microbatches in a step, or set compile.graphs = false",
            kMarksPerBlock / 4);
    }
    std::byte* const mark = blocks_.back().data() + num_taken_++ * sizeof(GraphMark);
    cuda::copy_to_host({mark, sizeof(GraphMark)}, current_.data(), stream);
    return reinterpret_cast<const GraphMark*>(mark);
}

bool GraphProgress::is_set_by(const GraphMark* mark, int64_t launch) {
    return std::atomic_ref(*const_cast<GraphMark*>(mark)).load(std::memory_order_acquire) == value_in(launch);
}

}  // namespace argosy::watch
