// The NCCL backend: tensors that a GPU holds travel by NCCL, those in the host's memory by the backend that
// the group has without a GPU.
//
// Streams. A group's reductions take a stream and a communicator of their own, its other collectives another
// one, so that a gather that comes ahead of its use does not queue behind a reduction; messages take one for
// each neighbour and direction, since what waits for a receiver must hold up nothing else. submit()
// puts the operations behind what was on LibTorch's current stream by then; wait() puts what comes on the
// current stream later behind the operations. Neither stops the host. So the order on the current stream is
// that of a program without streams, and this holds for memory too: a Pending keeps its tensors until wait(),
// and an allocator that gives memory away in the order of the current stream may do so from then on. Nothing
// is recorded with the allocator (record_stream), which would keep memory until some later look at an event.
//
// Order. NCCL wants launches of several communicators on one GPU in the same order on every rank. That is so
// because every rank runs the same program: groups' collectives come in one global order, over all lanes, and
// a message is the only thing on its lane.
//
// Graphs. submit() and wait() may become part of a graph that is being recorded on the current stream: what
// is submitted in it is waited for in it, and every kind of operation has run once before, since the first
// one makes communicators and connections. The graph's launches go through Communicator::watched: each
// operation within then has its place in the watchdog's lines, by marks that the GPU sets on the host, and
// the waits within are measured, too: in the last launch of each graph, which counts for all its
// launches since the figure was last brought up to date.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/exposed_time.h"
#include "comm/gpu_side.h"
#include "comm/group.h"
#include "comm/watchdog.h"

namespace argosy::comm {

class NcclCommunicator : public Communicator {
  public:
    /// `host` is the group's backend for tensors in the host's memory. COLLECTIVE is the first submission of
    /// a reduction on a GPU, and that of another collective: each makes a communicator of NCCL.
    /// `watchdog` is that of all groups that come from one; none where a rank is alone.
    NcclCommunicator(std::shared_ptr<const Group> group, std::unique_ptr<Communicator> host,
                     std::shared_ptr<Watchdog> watchdog);
    /// Where an error unwinds this rank leaves, and what is under way is broken off.
    ~NcclCommunicator() override;

    int rank() const override { return group_->rank(); }
    int size() const override { return group_->size(); }
    std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const override;
    void open_channels() override;

    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;

    /// Answers meanwhile who takes the roll on the host.
    void wait_for_gpu(const std::string& place) override;
    void watched(const std::string& what, const std::function<uint64_t()>& launch) override;

    double exposed_seconds() const override;

  private:
    enum class Direction { Out, In };
    /// Those of a submission's operations that one lane takes.
    struct Share {
        std::shared_ptr<Lane> lane;
        std::vector<const Op*> ops;
    };

    std::vector<Share> shares(std::span<const Op> ops);
    const std::shared_ptr<Lane>& lane_of(const Op& op);
    /// COLLECTIVE the first time.
    const std::shared_ptr<Lane>& collective_lane(bool reduces);
    /// COLLECTIVE.
    void make_channels();
    /// COLLECTIVE: what every rank makes of `own`, by rank.
    std::vector<nccl::UniqueId> ids_of_all(std::span<const nccl::UniqueId> own) const;
    std::shared_ptr<Lane> make_lane(const nccl::UniqueId& id, std::vector<int> members, int rank) const;
    std::vector<PooledEvent> launch(const std::vector<Share>& shares) const;
    void collect_exposed() const;

    std::shared_ptr<const Group> group_;
    std::unique_ptr<Communicator> host_;
    std::shared_ptr<Watchdog>
        watchdog_;  // not the group's, which an operation that is dropped never gives back
    std::shared_ptr<ExposedTime> exposed_ = std::make_shared<ExposedTime>();
    std::shared_ptr<Lane> gathers_, reductions_;                           // none before the first
    std::shared_ptr<LaunchLine> graphs_;                                   // likewise
    std::map<std::pair<int, Direction>, std::shared_ptr<Lane>> channels_;  // by neighbour
};

}  // namespace argosy::comm
