// A piece of work recorded once and launched as one from then on: what the GPU does is the same, what the
// host does for it is little.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace argosy::gpu {

class Graph {
  public:
    /// Records what `work` puts on the current stream and on streams that wait for it and that it waits for
    /// again; none of it runs. `work` may not wait for the GPU on the host. Tensors that it makes lie in
    /// memory that stays the graph's: whoever holds one reads in it what the last replay wrote. A graph that
    /// shares the memory of another must not run while that one does, nor read what it left there.
    explicit Graph(const std::function<void()>& work, const Graph* shares_memory_of = nullptr);
    ~Graph();
    Graph(Graph&&) noexcept;
    Graph& operator=(Graph&&) noexcept;

    /// Puts it on the current stream.
    void replay();

    /// As cuda::StreamView::captured_by called it while it was recorded.
    uint64_t number() const;

  private:
    struct Recorded;
    std::unique_ptr<Recorded> recorded_;
};

}  // namespace argosy::gpu
