#include "comm/graph_progress.h"

#include <atomic>

#include "base/error.h"

namespace argosy::comm {
namespace {

/// More than a graph of any use has: two for each operation.
constexpr size_t kMostMarks = size_t{1} << 20;
constexpr auto kSet = std::byte{1};

}  // namespace

GraphProgress::GraphProgress() : marks_(kMostMarks), set_(1) {
    const cuda::Stream stream;
    cuda::copy_to_device(set_.data(), {&kSet, 1}, stream);
    stream.synchronize();
}

const std::byte* GraphProgress::set_by(const cuda::Stream& stream, uint64_t graph) {
    if (graph != graph_) num_marks_ = 0;
    graph_ = graph;
    if (num_marks_ == kMostMarks) {
        throw RunError(
            "a step has more than {} operations between GPUs, which is more than the watchdog can watch in "
            "one "
            "graph: fewer microbatches, or compile.graphs=false, may do",
            kMostMarks / 2);
    }
    std::byte* const mark = marks_.data() + num_marks_++;
    std::atomic_ref(*mark).store(std::byte{0}, std::memory_order_relaxed);
    cuda::copy_to_host({mark, 1}, set_.data(), stream);
    return mark;
}

void GraphProgress::clear() {
    for (size_t i = 0; i < num_marks_; ++i) {
        std::atomic_ref(marks_.data()[i]).store(std::byte{0}, std::memory_order_relaxed);
    }
}

bool GraphProgress::is_set(const std::byte* mark) {
    return std::atomic_ref(*const_cast<std::byte*>(mark)).load(std::memory_order_acquire) == kSet;
}

}  // namespace argosy::comm
