#include "watch/gpu_side.h"

#include <chrono>
#include <thread>
#include <utility>

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

void GpuSide::record(const Lane& lane, LaunchLine::Work work, uint64_t graph) {
    lane.line->record(graph, std::move(work), progress_->set_by(lane.stream));
}

void GpuSide::recorded(const Lane& lane, uint64_t graph) {
    lane.line->recorded(graph, progress_->set_by(lane.stream));
}

void GpuSide::graph_begins(const cuda::StreamView& stream) {
    ++num_launches_;
    if (progress_) progress_->begin_launch(num_launches_, stream);
    for (const auto& line : lines()) line->graph_begins(num_launches_);
}

void GpuSide::graph_launched(uint64_t graph, cuda::PooledEvent end) {
    ++num_launches_of_[graph];
    for (const auto& line : lines()) line->graph_launched(end);
    graph_end_ = std::move(end);
}

bool GpuSide::graph_under_way() {
    if (graph_end_ && graph_end_->done()) graph_end_.reset();
    return graph_end_ != nullptr;
}

int64_t GpuSide::num_launches(uint64_t graph) const {
    const auto found = num_launches_of_.find(graph);
    return found == num_launches_of_.end() ? 0 : found->second;
}

std::shared_ptr<LaunchLine> GpuSide::open_line(const std::string& name, const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    auto line = std::make_shared<LaunchLine>(name, members, num_lines_[{name, members}]++);
    lines_.push_back(line);
    return line;
}

void GpuSide::add(const std::shared_ptr<Lane>& lane) {
    if (!progress_) progress_.emplace();
    const std::lock_guard lock(mutex_);
    lanes_.push_back(lane);
}

std::vector<std::shared_ptr<LaunchLine>> GpuSide::lines() const {
    const std::lock_guard lock(mutex_);
    return living(lines_);
}

std::vector<std::shared_ptr<Lane>> GpuSide::lanes() const {
    const std::lock_guard lock(mutex_);
    return living(lanes_);
}

void GpuSide::require_going_on() const {
    while (ends_) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void GpuSide::let_others_speak() const {
    constexpr int kMostSeconds = 30;
    for (int tenth = 0; tenth < 10 * kMostSeconds; ++tenth) {
        require_going_on();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

}  // namespace argosy::watch
