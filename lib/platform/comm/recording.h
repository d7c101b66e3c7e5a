// A world of any size, seen from one rank without the others. A RecordingCommunicator checks each operation
// and records it in a Recording instead of communicating; its groups are computed from rank numbers. A
// program that runs on tensors without data (meta) then shows what a rank of the real job does.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/element_type.h"
#include "comm/communicator.h"
#include "comm/tensor_pool.h"

namespace argosy::comm {

/// The bytes that a rank sends to other ranks of a group and receives from them.
struct MovedBytes {
    int64_t sent = 0, received = 0;
    auto operator<=>(const MovedBytes&) const = default;
};

/// An operation as one rank of a group submits it.
struct RecordedOp {
    std::string group;  // Communicator::name()
    int rank = 0;       // this rank's number in the group
    int size = 1;       // number of ranks in the group
    OpKind kind;
    ElementType type;
    int64_t num_elements = 0;  // comm::num_elements()
    int peer = -1;             // as in Op
    MovedBytes parts = {};     // of an AllToAll, without this rank's part for itself

    auto operator<=>(const RecordedOp&) const = default;
    int64_t num_bytes() const { return num_elements * size_bytes(type); }
};

/// The bytes that `op` moves, if each collective goes along a ring of its group's ranks. For n ranks and
/// num_bytes() = b: an all-gather and a reduce-scatter move b (n - 1) / n each way, an all-reduce moves twice
/// as much (rounded down). A broadcast goes from its root along the ring: every rank but the root receives b,
/// and every rank but the last one sends b. A message moves b one way. An all-to-all has no ring: each part
/// goes to its rank.
MovedBytes moved_bytes(const RecordedOp& op);

/// The NCCL communicators of a rank whose tensors are on a GPU (nccl_communicator.h).
struct RecordedConnections {
    int collectives = 0;                    // for reductions, or for the other collectives, of a group
    int messages_out = 0, messages_in = 0;  // to and from neighbours
    int number() const { return collectives + messages_out + messages_in; }
    auto operator<=>(const RecordedConnections&) const = default;
};

/// The operations that a rank has submitted to a world and to the groups made from it.
class Recording {
  public:
    /// A submission, whose operations are launched together.
    struct Launch {
        int64_t number;  // counts the submissions of all groups
        const Communicator& group;
        std::span<const RecordedOp> ops;
        Purpose purpose;  // of the first operation
    };
    /// `launched` gets each submission and `waited` the number of a submission whose end the program waits
    /// for, both in the order of the program.
    struct Observer {
        std::function<void(const Launch&)> launched = nullptr;
        std::function<void(int64_t number)> waited = nullptr;
    };
    Recording() = default;
    explicit Recording(Observer observer) : observer_(std::move(observer)) {}

    /// Records a submission to `group` and returns its number. Throws RunError as check() does. Memory grows
    /// with the number of different operations, not with the number of submissions.
    int64_t add(const Communicator& group, std::span<const Op> ops);
    /// The program waits for the end of a submission.
    void wait(int64_t number) const;

    /// How often each operation was submitted.
    const std::map<RecordedOp, int64_t>& counts() const { return counts_; }
    /// The sum of moved_bytes() over the operations of each group, by the group's name.
    std::map<std::string, MovedBytes> bytes_by_group() const;

    /// Those that were made so far, whether a group opened them or its first operation made them.
    const RecordedConnections& connections() const { return connections_; }
    void add(const RecordedConnections& made);

    /// Whether ranks of the world exchange by copies along their ring (Communicator::open_ring()); without
    /// this function none do.
    std::function<bool(const std::vector<int>& world_ranks)> copies_along_ring = nullptr;
    /// The memory of the pools for that, which does not count as tensors' memory.
    int64_t peer_bytes = 0;

  private:
    Observer observer_;
    int64_t num_launches_ = 0;
    std::map<RecordedOp, int64_t> counts_;
    RecordedConnections connections_;
};

/// Rank `rank` of `size` ranks. Tensors may have no data (meta) or be in the host's memory; the communicator
/// neither reads nor writes them, so Op::out keeps its elements. Pending keeps the tensors until wait(), as
/// with other backends.
class RecordingCommunicator : public Communicator {
  public:
    /// `device` is the result of device(). REQUIRES: recording outlives this object and all groups made from
    /// it.
    RecordingCommunicator(int rank, int size, Recording& recording, c10::Device device = c10::kMeta,
                          std::string name = "world");

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    /// The numbers of the group's ranks in the world, ascending.
    const std::vector<int>& world_ranks() const { return world_ranks_; }
    std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const override;
    void open_collectives(Collectives kinds) override;
    void open_channels() override;
    void open_ring() override;
    at::Tensor make_ring_tensor(at::IntArrayRef shape, const at::TensorOptions& options) override;
    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;
    void wait_for_gpu() override {}

  private:
    void open(bool& is_open, const RecordedConnections& made);

    int rank_, size_;
    bool has_reductions_ = false, has_others_ = false, has_channels_ = false;
    std::vector<int> world_ranks_;
    std::shared_ptr<TensorPool> ring_;  // null unless the exchanges along the ring are copies
    Recording& recording_;
};

}  // namespace argosy::comm
