#include "gpu/graph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "cuda/stream.h"
#include "gpu/device.h"

namespace argosy::gpu {

namespace allocator = c10::cuda::CUDACachingAllocator;

struct Graph::Recorded : at::cuda::CUDAGraph {
    uint64_t number = 0;

    /// Ends a recording that has failed, because code that runs while the error unwinds may wait for the
    /// stream.
    void discard() noexcept;
};

// If capture_end() fails early, it leaves the allocators asking this graph about each allocation, also after
// the graph is destroyed.
void Graph::Recorded::discard() noexcept {
    try {
        capture_end();
        return;
    } catch (...) {
        cudaGetLastError();  // clears the error; the one that is being thrown says why the recording failed
    }
    if (capture_ended_) return;  // the destructor gives the memory back
    try {
        allocator::endAllocateToPool(capture_dev_, mempool_id_);
        allocator::releasePool(capture_dev_, mempool_id_);
        at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_);
        at::getHostAllocator(at::kCUDA)->release_pool(mempool_id_);
    } catch (...) {
        // capture_end() has already told the allocators.
    }
}

// The capture mode is thread-local, because other threads continue with calls that the global mode forbids
// during a capture (a copy to the host, an event query). The allocator's unused memory is freed first,
// because the graph needs memory of its own.
Graph::Graph(const std::function<void()>& work, const Graph* shares_memory_of)
    : recorded_(std::make_unique<Recorded>()) {
    free_cached_memory();
    const at::cuda::MempoolId_t memory =
        shares_memory_of ? shares_memory_of->recorded_->pool() : at::cuda::MempoolId_t{0, 0};
    recorded_->capture_begin(memory, cudaStreamCaptureModeThreadLocal);
    try {
        recorded_->number = cuda::StreamView(current_stream()).captured_by();
        work();
        recorded_->capture_end();
    } catch (...) {
        recorded_->discard();
        throw;
    }
}

Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::replay() { recorded_->replay(); }

uint64_t Graph::number() const { return recorded_->number; }

}  // namespace argosy::gpu
