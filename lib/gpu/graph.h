// A CUDA graph: GPU work that is recorded once and then replayed with a single launch. The GPU does the same
// work as without a graph; the host spends little time on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace argosy::gpu {

class Graph {
  public:
    /// Runs `work` and records what it queues on the current stream, and on streams that wait for the current
    /// one and that it waits for again; the GPU executes nothing of it. `work` must not wait for the GPU on
    /// the host. Tensors that `work` makes stay in the graph's memory, and each replay overwrites them. A
    /// graph that shares another graph's memory must not run at the same time as that graph, nor read what
    /// that graph left there.
    explicit Graph(const std::function<void()>& work, const Graph* shares_memory_of = nullptr);
    ~Graph();
    Graph(Graph&&) noexcept;
    Graph& operator=(Graph&&) noexcept;

    /// Queues the recorded work on the current stream.
    void replay();

    /// The number that cuda::StreamView::captured_by() returned during the recording.
    uint64_t number() const;

  private:
    struct Recorded;
    std::unique_ptr<Recorded> recorded_;
};

}  // namespace argosy::gpu
