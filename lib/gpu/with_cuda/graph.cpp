#include "gpu/graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "cuda/stream.h"
#include "gpu/device.h"

namespace argosy::gpu {

namespace {

/// Ends the recording, because code that runs while the error unwinds may wait for the stream.
void end_capture(at::cuda::CUDAGraph& graph) {
    try {
        graph.capture_end();
    } catch (...) {
        // The recording so far may be invalid; the error that is being thrown says why.
    }
}

}  // namespace

struct Graph::Recorded {
    at::cuda::CUDAGraph graph;
    uint64_t number = 0;
};

// The capture mode is thread-local, because other threads continue with calls that the global mode forbids
// during a capture (a copy to the host, an event query). The allocator's unused memory is freed first,
// because the graph needs memory of its own.
Graph::Graph(const std::function<void()>& work, const Graph* shares_memory_of)
    : recorded_(std::make_unique<Recorded>()) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    const at::cuda::MempoolId_t memory =
        shares_memory_of ? shares_memory_of->recorded_->graph.pool() : at::cuda::MempoolId_t{0, 0};
    recorded_->graph.capture_begin(memory, cudaStreamCaptureModeThreadLocal);
    try {
        recorded_->number = cuda::StreamView(current_stream()).captured_by();
        work();
    } catch (...) {
        end_capture(recorded_->graph);
        throw;
    }
    recorded_->graph.capture_end();
}

Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::replay() { recorded_->graph.replay(); }

uint64_t Graph::number() const { return recorded_->number; }

}  // namespace argosy::gpu
