#include "observe/gpu_kinds.h"

#include <algorithm>
#include <utility>

#include "gpu/device.h"

namespace argosy::observe {

const char* name_of(ComputeKind kind) {
    constexpr const char* kNames[kNumComputeKinds] = {"forward",  "recompute", "head",
                                                      "backward", "weights",   "other"};
    return kNames[static_cast<size_t>(kind)];
}

void GpuKinds::begin(ComputeKind kind) {
    const int label = static_cast<int>(kind) + 1;
    const cuda::StreamView stream(gpu::current_stream());
    const uint64_t graph = stream.captured_by();
    if (last_ && last_->graph != graph) end();  // work before a recording, and work that is recorded
    if (label == label_) return;
    const cuda::PooledEvent event = clocks_.take();
    graph == 0 ? event->record(stream) : event->record_at_each_launch(stream);
    if (last_) times_.add(graph, last_->event, event);
    last_ = {graph, event};
    set_label(label);
}

void GpuKinds::end() {
    last_.reset();
    set_label(kNoKind);
}

void GpuKinds::set_label(int label) {
    label_ = label;
    times_.set_label(label);
    mesh_.for_each_shared_group([&](comm::Communicator& group, int) { group.label_exposed(label); });
}

double GpuKinds::total_seconds(int label) const {
    double seconds = times_.seconds(label);
    mesh_.for_each_shared_group(
        [&](const comm::Communicator& group, int) { seconds -= group.exposed_seconds_of(label); });
    return seconds;
}

std::array<double, kNumComputeKinds> GpuKinds::take(double all_seconds) {
    times_.collect();
    times_.collect_recorded([&](uint64_t graph) {
        const auto found = num_launches_.find(graph);
        return found == num_launches_.end() ? 0 : found->second;
    });
    std::array<double, kNumComputeKinds> own{};
    double rest = all_seconds;
    for (int i = 0; i < kNumComputeKinds; ++i) {
        const double total = total_seconds(i + 1);
        own[i] = std::max(total - std::exchange(taken_[i], total), 0.0);
        if (i != static_cast<int>(ComputeKind::Other)) rest -= own[i];
    }
    own[static_cast<size_t>(ComputeKind::Other)] = std::max(rest, 0.0);
    return own;
}

}  // namespace argosy::observe
