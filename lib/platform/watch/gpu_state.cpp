#include "watch/gpu_state.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace argosy::watch {
namespace {

template <class Thing>
std::vector<std::shared_ptr<Thing>> living(const std::vector<std::weak_ptr<Thing>>& all) {
    std::vector<std::shared_ptr<Thing>> found;
    for (const auto& weak : all) {
        if (auto thing = weak.lock()) found.push_back(std::move(thing));
    }
    return found;
}

}  // namespace

void GpuState::record(const Lane& lane, LaunchQueue::Work work, uint64_t graph) {
    lane.queue->record(graph, std::move(work), graph_progress_->add_mark(lane.stream));
}

void GpuState::recorded(const Lane& lane, uint64_t graph) {
    lane.queue->recorded(graph, graph_progress_->add_mark(lane.stream));
}

void GpuState::graph_begins(const cuda::StreamView& stream, const FlightSpan& flight) {
    ++num_launches_;
    if (graph_progress_) graph_progress_->begin_launch(num_launches_, stream);
    for (const auto& queue : queues()) queue->graph_begins(num_launches_, flight);
}

void GpuState::graph_launched(uint64_t graph, cuda::PooledEvent end) {
    ++num_launches_of_[graph];
    for (const auto& queue : queues()) queue->graph_launched(end);
    graph_end_ = std::move(end);
}

bool GpuState::graph_under_way() {
    if (graph_end_ && graph_end_->done()) graph_end_.reset();
    return graph_end_ != nullptr;
}

int64_t GpuState::num_launches(uint64_t graph) const {
    const auto found = num_launches_of_.find(graph);
    return found == num_launches_of_.end() ? 0 : found->second;
}

std::shared_ptr<LaunchQueue> GpuState::open_queue(const std::string& name, const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    auto queue = std::make_shared<LaunchQueue>(name, members, num_queues_[{name, members}]++);
    queues_.push_back(queue);
    return queue;
}

void GpuState::add(const std::shared_ptr<Lane>& lane) {
    if (!graph_progress_) graph_progress_.emplace();
    const std::lock_guard lock(mutex_);
    lanes_.push_back(lane);
}

std::vector<std::shared_ptr<LaunchQueue>> GpuState::queues() const {
    const std::lock_guard lock(mutex_);
    return living(queues_);
}

std::vector<std::shared_ptr<Lane>> GpuState::lanes() const {
    const std::lock_guard lock(mutex_);
    return living(lanes_);
}

void GpuState::block_if_ending() const {
    while (ending_) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void GpuState::wait_for_root_cause() const {
    for (const double start = seconds_now(); seconds_now() - start < seconds_to_root_cause_;) {
        block_if_ending();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

void Lane::require_health() {
    const std::lock_guard lock(mutex_);
    if (!aborted_ && communicator) communicator->require_health();
}

std::future<void> Lane::abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    if (communicator) return communicator->abort();
    // CUDA may not answer, so it is asked on a thread of its own.
    std::packaged_task<void()> end(end_waits_);
    std::future<void> future = end.get_future();
    std::thread(std::move(end)).detach();
    return future;
}

void abort_all(const std::vector<std::shared_ptr<Lane>>& lanes) {
    const auto deadline = std::chrono::steady_clock::now() + nccl::kTimeToAbort;
    std::vector<std::future<void>> aborts;
    for (const auto& lane : lanes) aborts.push_back(lane->abort());
    for (const auto& abort : aborts) abort.wait_until(deadline);
}

}  // namespace argosy::watch
