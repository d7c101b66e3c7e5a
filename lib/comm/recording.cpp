#include "comm/recording.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace argosy::comm {
namespace {

class NothingToWaitFor : public Completion {
  public:
    void wait() override {}
};

int64_t num_elements(const at::Tensor& tensor) { return tensor.defined() ? tensor.numel() : 0; }

RecordedOp record_of(const Communicator& group, const Op& op) {
    return {.group = group.name(),
            .rank = group.rank(),
            .size = group.size(),
            .kind = op.kind,
            .type = element_type(op),
            .num_elements = std::max(num_elements(op.in), num_elements(op.out)),
            .peer = op.peer};
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
        case OpKind::Send:
            return {bytes, 0};
        case OpKind::Receive:
            return {0, bytes};
    }
    return {};
}

void Recording::add(const Communicator& group, std::span<const Op> ops) {
    std::vector<RecordedOp> launch;
    for (const Op& op : ops) {
        check(op, group.size());
        launch.push_back(record_of(group, op));
        ++counts_[launch.back()];
    }
    if (observer_ && !launch.empty()) observer_(launch);
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

RecordingCommunicator::RecordingCommunicator(int rank, int size, Recording& recording, c10::Device device,
                                             std::string name)
    : Communicator(std::move(name), device), rank_(rank), size_(size), recording_(recording) {
    ARGOSY_CHECK(rank >= 0 && rank < size, "rank {} of {} ranks", rank, size);
}

std::unique_ptr<Communicator> RecordingCommunicator::subgroup(std::span<const int> ranks,
                                                              std::string name) const {
    const auto own = std::ranges::find(ranks, rank_);
    ARGOSY_CHECK(own != ranks.end(), "rank {} is not a member of its group {}", rank_, name);
    return std::make_unique<RecordingCommunicator>(static_cast<int>(own - ranks.begin()),
                                                   static_cast<int>(ranks.size()), recording_, device(),
                                                   std::move(name));
}

Pending RecordingCommunicator::submit(std::span<const Op> ops) {
    if (ops.empty()) return {};
    recording_.add(*this, ops);
    return Pending(std::make_unique<NothingToWaitFor>(), tensors_of(ops), /*exposed_seconds=*/nullptr);
}

}  // namespace argosy::comm
