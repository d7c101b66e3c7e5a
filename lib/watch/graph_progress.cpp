#include "watch/graph_progress.h"

#include <atomic>
#include <cstring>
#include <numeric>
#include <span>

#include "base/error.h"

namespace argosy::watch {
namespace {

constexpr int64_t kNumNumbers = 65535;

/// An operation takes two marks. Half a block is more than any useful graph needs.
constexpr size_t kMarksPerBlock = size_t{1} << 19;

GraphMark number_of(int64_t launch) { return static_cast<GraphMark>(launch % kNumNumbers + 1); }

GraphMark read(const GraphMark* mark) {
    return std::atomic_ref(*const_cast<GraphMark*>(mark)).load(std::memory_order_acquire);
}

}  // namespace

GraphProgress::GraphProgress() : numbers_(kNumNumbers * sizeof(GraphMark)), own_(sizeof(GraphMark)) {
    std::vector<GraphMark> numbers(kNumNumbers);
    std::iota(numbers.begin(), numbers.end(), GraphMark{1});
    const cuda::Stream stream;
    cuda::copy_to_device(numbers_.data(), std::as_bytes(std::span(numbers)), stream);
    cuda::set_to_zero(own_.data(), own_.bytes(), stream);
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
    const std::byte* const number = numbers_.data() + (number_of(launch) - 1) * sizeof(GraphMark);
    cuda::copy_on_device(own_.data(), number, sizeof(GraphMark), stream);
}

const GraphMark* GraphProgress::set_by(const cuda::Stream& stream) {
    if (num_taken_ == kMarksPerBlock) {
        throw RunError(
            "a graph has more than {} operations between GPUs, which is more than the watchdog can watch: "
            "fewer "
            "microbatches in a step, or compile.graphs = false, may do",
            kMarksPerBlock / 4);
    }
    std::byte* const mark = blocks_.back().data() + num_taken_++ * sizeof(GraphMark);
    cuda::copy_to_host({mark, sizeof(GraphMark)}, own_.data(), stream);
    return reinterpret_cast<const GraphMark*>(mark);
}

bool GraphProgress::is_of(const GraphMark* mark, int64_t launch) { return read(mark) == number_of(launch); }

}  // namespace argosy::watch
