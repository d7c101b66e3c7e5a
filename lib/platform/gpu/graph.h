// A CUDA graph: GPU work that is recorded once and then replayed with a single launch. The GPU does the same
// work as without a graph, but the host spends little time on launches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace argosy::gpu {

class Graph {
  public:
    /// Runs `work` and records the GPU work that it queues on the current stream; the GPU does not execute
    /// this work. Work on another stream is recorded too, if that stream first waits for the current stream
    /// and the current stream waits for that work at the end. `work` must not wait for the GPU on the host.
    /// Tensors that `work` makes stay in the graph's memory, and each replay overwrites them.
    ///
    /// A graph that shares another graph's memory must not run at the same time as that graph, nor read what
    /// that graph left in the memory.
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
