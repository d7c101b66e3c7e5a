// The NCCL backend: NCCL sends tensors on a GPU, the group's host backend sends tensors in the host's memory.
//
// Streams. A lane is a stream with an NCCL communicator (watch/gpu_state.h). A group's reductions use one
// lane and its other collectives another one, so that an all-gather that is submitted early (a prefetch) does
// not queue behind a reduction. Sends and receives use one lane for each neighbour and direction, because a
// message that waits for a peer must not delay anything else. Messages along a ring may be copies to the next
// rank's memory in place of NCCL's (comm/peer_memory.h), on lanes of their own. submit() orders the
// operations after the work on LibTorch's current stream; wait() orders later work on the current stream
// after the operations. submit() and wait() do not block the host. Work on the current stream therefore sees
// the operations in the program's order, as if there were no other stream. Memory follows the same order: a
// Pending keeps its tensors until wait(), and an allocator that reuses memory in the order of the current
// stream may reuse theirs from then on. No tensor is recorded with the allocator (record_stream), because
// that would hold the memory until the allocator later queries an event.
//
// Order. NCCL requires that launches of several communicators on one GPU have the same order on every rank.
// This holds because every rank runs the same program: the collectives of all groups have one global order,
// over all lanes, and a lane of messages carries nothing else.
//
// Graphs. submit() and wait() may become part of a graph that is being recorded on the current stream.
// REQUIRES: an operation that is submitted in a graph is waited for in the same graph. Every kind of
// operation has run once before the recording, because its first run makes communicators and connections. An
// AllToAll connects the pairs of ranks that have parts for each other.
// Communicator::launch_graph launches the graph. During the launch, the GPU sets marks in host memory, by
// which the watchdog follows each operation. Waits within a graph are measured in its last launch; the result
// counts for all its launches since the exposed time was last updated.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/peer_memory.h"
#include "comm/registered_memory.h"
#include "cuda/stream_times.h"
#include "watch/gpu_state.h"

namespace argosy::comm {

class NcclCommunicator : public GroupCommunicator {
  public:
    /// `host` is the group's backend for tensors in the host's memory. COLLECTIVE: the first submission of a
    /// reduction on a GPU, and the first submission of any other collective there; each makes an NCCL
    /// communicator, unless open_collectives() has made it.
    NcclCommunicator(std::shared_ptr<const Group> group, std::unique_ptr<Communicator> host);
    /// If an exception unwinds the stack, leaves the watchdog and aborts the operations under way.
    ~NcclCommunicator() override;

    Connections connections() const override {
        const watch::GpuState::Made& made = group_->gpu()->made;
        return {made.number, made.bytes, made.registered_bytes, made.refused_bytes, made.peer_bytes};
    }
    int channels_under_way() const override { return group_->gpu()->channels_under_way; }
    void open_collectives(Collectives kinds) override;
    void open_channels() override;
    void open_ring() override;
    at::Tensor make_ring_tensor(at::IntArrayRef shape, const at::TensorOptions& options) override;
    at::Tensor make_tensor(Collectives kind, at::IntArrayRef shape,
                           const at::TensorOptions& options) override;

    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;
    Pending submit_on_host(std::span<const Op> ops) override { return host_->submit(ops); }

    void wait_for_gpu() override;
    void launch_graph(const std::string& what, const std::function<uint64_t()>& launch) override;

    double exposed_seconds() const override;
    void label_exposed(int label) override { exposed_->set_label(label); }
    double exposed_seconds_of(int label) const override;

  private:
    enum class Direction { Out, In };
    /// The operations of a submission that go to one lane.
    struct LaneOps {
        std::shared_ptr<watch::Lane> lane;
        std::vector<const Op*> ops;
    };

    std::vector<LaneOps> by_lane(std::span<const Op> ops);
    const std::shared_ptr<watch::Lane>& lane_of(const Op& op);
    /// COLLECTIVE on the first call, which makes the lane.
    const std::shared_ptr<watch::Lane>& collective_lane(bool reduces);
    /// COLLECTIVE.
    void make_channels();
    /// COLLECTIVE.
    void make_peer_lanes();
    void close_peers();
    /// COLLECTIVE: all-gathers `own`, in the order of ranks.
    std::vector<nccl::UniqueId> ids_of_all(std::span<const nccl::UniqueId> own) const;
    std::shared_ptr<watch::Lane> make_lane(const nccl::UniqueId& id, std::vector<int> members, int rank,
                                           int max_channels, bool copy_engines = false) const;
    std::vector<cuda::PooledEvent> launch(const std::vector<LaneOps>& lanes) const;
    void start_all(const std::vector<LaneOps>& lanes) const;
    void start_copies(const std::vector<LaneOps>& lanes) const;
    void collect_exposed() const;

    std::unique_ptr<Communicator> host_;
    std::shared_ptr<cuda::StreamTimes> exposed_ = std::make_shared<cuda::StreamTimes>();
    std::shared_ptr<watch::Lane> reductions_, others_;  // of collectives; null before the first operation
    std::shared_ptr<RegisteredSegments> registered_for_reductions_, registered_for_others_;
    std::shared_ptr<watch::LaunchQueue> graph_calls_;  // calls that launch graphs; null before the first
    std::map<std::pair<int, Direction>, std::shared_ptr<watch::Lane>> channels_;  // by neighbour
    std::shared_ptr<PeerMemory> peers_;  // null unless the messages of channels_ are copies
};

}  // namespace argosy::comm
