#include "comm/recording.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace argosy::comm {
namespace {

class RecordedWait : public Completion {
  public:
    RecordedWait(const Recording& recording, int64_t launch) : recording_(recording), launch_(launch) {}
    void wait() override { recording_.wait(launch_); }

  private:
    const Recording& recording_;
    int64_t launch_;
};

/// The size of a pool. Tensors without data have addresses that nobody reads.
class RecordedPool : public TensorPool {
  public:
    explicit RecordedPool(Recording& recording) : recording_(recording) {}

  private:
    std::byte* add_segment(int64_t num_bytes) override {
        recording_.peer_bytes += num_bytes;
        return reinterpret_cast<std::byte*>(std::exchange(end_, end_ + static_cast<uintptr_t>(num_bytes)));
    }
    Recording& recording_;
    uintptr_t end_ = 1 << 21;
};

MovedBytes parts_of(const Op& op, int rank) {
    if (op.kind != OpKind::AllToAll) return {};
    const int64_t width = size_bytes(element_type(op));
    return {(op.in.numel() - op.parts.sent[rank]) * width,
            (op.out.numel() - op.parts.received[rank]) * width};
}

RecordedOp record_of(const Communicator& group, const Op& op) {
    return {.group = group.name(),
            .rank = group.rank(),
            .size = group.size(),
            .kind = op.kind,
            .type = element_type(op),
            .num_elements = num_elements(op),
            .peer = op.peer,
            .parts = parts_of(op, group.rank())};
}

}  // namespace

MovedBytes moved_bytes(const RecordedOp& op) {
    const int64_t bytes = op.num_bytes();
    const auto along_ring = [&](int64_t rounds) {
        const int64_t moved = rounds * bytes * (op.size - 1) / op.size;
        return MovedBytes{moved, moved};
    };
    switch (op.kind) {
        case OpKind::AllGather:
        case OpKind::ReduceScatter:
            return along_ring(1);
        case OpKind::AllReduce:
            return along_ring(2);
        case OpKind::Broadcast: {
            const int after_root = (op.rank - op.peer + op.size) % op.size;
            return {after_root + 1 < op.size ? bytes : 0, after_root > 0 ? bytes : 0};
        }
        case OpKind::AllToAll:
            return op.parts;
        case OpKind::Send:
            return {bytes, 0};
        case OpKind::Receive:
            return {0, bytes};
    }
    return {};
}

int64_t Recording::add(const Communicator& group, std::span<const Op> ops) {
    std::vector<RecordedOp> launch;
    for (const Op& op : ops) {
        check(op, group);
        launch.push_back(record_of(group, op));
        ++counts_[launch.back()];
    }
    if (observer_.launched && !launch.empty())
        observer_.launched({num_launches_, group, launch, ops[0].purpose});
    return num_launches_++;
}

void Recording::wait(int64_t number) const {
    if (observer_.waited) observer_.waited(number);
}

std::map<std::string, MovedBytes> Recording::bytes_by_group() const {
    std::map<std::string, MovedBytes> sums;
    for (const auto& [op, count] : counts_) {
        const MovedBytes each = moved_bytes(op);
        MovedBytes& sum = sums[op.group];
        sum.sent += count * each.sent;
        sum.received += count * each.received;
    }
    return sums;
}

void Recording::add(const RecordedConnections& made) {
    connections_.collectives += made.collectives;
    connections_.messages_out += made.messages_out;
    connections_.messages_in += made.messages_in;
}

RecordingCommunicator::RecordingCommunicator(int rank, int size, Recording& recording, c10::Device device,
                                             std::string name)
    : Communicator(std::move(name), device),
      rank_(rank),
      size_(size),
      world_ranks_(size),
      recording_(recording) {
    ARGOSY_CHECK(rank >= 0 && rank < size, "rank {} of {} ranks", rank, size);
    std::iota(world_ranks_.begin(), world_ranks_.end(), 0);
}

std::unique_ptr<Communicator> RecordingCommunicator::subgroup(std::span<const int> ranks,
                                                              std::string name) const {
    const auto own = std::ranges::find(ranks, rank_);
    ARGOSY_CHECK(own != ranks.end(), "rank {} is not a member of its group {}", rank_, name);
    auto group = std::make_unique<RecordingCommunicator>(static_cast<int>(own - ranks.begin()),
                                                         static_cast<int>(ranks.size()), recording_, device(),
                                                         std::move(name));
    std::ranges::transform(ranks, group->world_ranks_.begin(), [&](int rank) { return world_ranks_[rank]; });
    return group;
}

void RecordingCommunicator::open(bool& is_open, const RecordedConnections& made) {
    if (size_ > 1 && !std::exchange(is_open, true)) recording_.add(made);
}

void RecordingCommunicator::open_collectives(Collectives kinds) {
    if (kinds != Collectives::Others) open(has_reductions_, {.collectives = 1});
    if (kinds != Collectives::Reductions) open(has_others_, {.collectives = 1});
}

void RecordingCommunicator::open_channels() {
    const int num_neighbours = size_ == 2 ? 1 : 2;
    open(has_channels_, {.messages_out = num_neighbours, .messages_in = num_neighbours});
}

void RecordingCommunicator::open_ring() {
    if (size_ == 1 || ring_) return;
    if (!recording_.copies_along_ring || !recording_.copies_along_ring(world_ranks_)) return open_channels();
    ring_ = std::make_shared<RecordedPool>(recording_);
}

at::Tensor RecordingCommunicator::make_ring_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
    return ring_ ? ring_->make(shape, options) : Communicator::make_ring_tensor(shape, options);
}

Pending RecordingCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return {};
    const int64_t number = recording_.add(*this, ops);
    for (const Op& op : ops) {
        if (is_message(op) || (op.out.defined() ? op.out : op.in).is_cpu()) continue;
        open_collectives(is_reduction(op) ? Collectives::Reductions : Collectives::Others);
    }
    return Pending(std::make_unique<RecordedWait>(recording_, number), tensors_of(ops),
                   /*exposed_seconds=*/nullptr);
}

}  // namespace argosy::comm
