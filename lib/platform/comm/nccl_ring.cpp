// The ring of an NcclCommunicator whose exchanges are copies to the memory of the next rank's GPU.
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "comm/nccl_communicator.h"
#include "gpu/device.h"

namespace argosy::comm {

void NcclCommunicator::open_ring() {
    if (size() == 1 || !channels_.empty()) return;
    if (!group_->options().peer_copies) return open_channels();
    group_->gpu()->run_unless_ending([this] {
        PeerMemory::Opened opened = PeerMemory::open(*host_);
        peers_ = std::move(opened.memory);
        peers_ ? make_peer_lanes() : make_channels();
        if (peers_ && group_->members()[rank()] == 0)
            spdlog::info("the exchanges of {} are copies to the memory of the next rank's GPU", name());
        if (!peers_ && rank() == 0)  // another group may have no obstacle
            spdlog::warn("the exchanges of {} go through NCCL in spite of comm.peer_copies: {}", name(),
                         opened.why_not);
    });
}

void NcclCommunicator::make_peer_lanes() {
    const auto make = [this](int from, int to) {
        const std::vector<int> members = {group_->members()[from], group_->members()[to]};
        const auto lane = std::make_shared<watch::Lane>(group_->gpu()->open_queue(name(), members),
                                                        [peers = peers_] { peers->end_waits(); });
        group_->gpu()->add(lane);
        return lane;
    };
    const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
    channels_[{next, Direction::Out}] = make(rank(), next);
    channels_[{previous, Direction::In}] = make(previous, rank());
}

void NcclCommunicator::close_peers() {
    if (!peers_) return;
    try {
        for (const auto& [neighbour, lane] : channels_) lane->stream.synchronize();
        peers_->close();
    } catch (const Error& error) {
        spdlog::error("{}", error.what());
    }
}

at::Tensor NcclCommunicator::make_ring_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
    if (!peers_) return Communicator::make_ring_tensor(shape, options);
    return group_->gpu()->run_unless_ending([&] {
        const int64_t before = peers_->num_bytes();
        at::Tensor made = peers_->make(shape, options);
        group_->gpu()->made.peer_bytes += peers_->num_bytes() - before;
        return made;
    });
}

void NcclCommunicator::start_copies(const std::vector<LaneOps>& lanes) const {
    const LaneOps *out = nullptr, *in = nullptr;
    for (const LaneOps& one : lanes) {
        if (one.lane->communicator) continue;
        (one.ops[0]->kind == OpKind::Send ? out : in) = &one;
    }
    ARGOSY_CHECK(out && in && out->ops.size() == 1 && in->ops.size() == 1,
                 "an exchange along the ring of {} is one send and one receive", name());
    if (cuda::StreamView(gpu::current_stream()).is_captured())
        throw RunError("internal error: copies to the GPUs of {} while a graph is recorded", name());
    peers_->exchange(*out->ops[0], out->lane->stream, in->lane->stream);
}

}  // namespace argosy::comm
