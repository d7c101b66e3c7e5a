// A step of one rank as it runs without data: the memory that its tensors take, and what the rank computes,
// launches and waits for, with the times that a machine needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/recording.h"
#include "layout/mesh_shape.h"
#include "parallel/parallel_model.h"
#include "plan/machine.h"
#include "train/step.h"
#include "train/trainer.h"

namespace argosy::plan {

/// The bytes that a rank holds during training, by purpose, without activations.
struct HeldBytes {
    int64_t weights = 0;    // the weights that the optimizer updates
    int64_t copies = 0;     // copies of the weights in the type of computation, if that type differs
    int64_t gradients = 0;  // sums per parameter, and gradients of units that are not reduced yet
    int64_t states = 0;     // of the optimizers
    int64_t gathered = 0;   // weights of units that are gathered now
    int64_t total() const { return weights + copies + gradients + states + gathered; }
    bool operator==(const HeldBytes&) const = default;
};

/// Bytes that this rank holds now.
HeldBytes held_bytes(train::Trainer& trainer);

/// Bytes that the Trainer of a rank will hold after its construction. Allocates nothing.
HeldBytes planned_bytes(const train::TrainerOptions& options, const layout::MeshShape& shape, int rank);

/// The memory of a rank's tensors when it is largest.
struct PeakMemory {
    int64_t bytes = 0;
    HeldBytes held = {};
    std::string operation = {};  // "Forward of stage 0 unit 3 microbatch 1", "the optimizer's update"
    /// Activations and temporary tensors.
    int64_t other_bytes() const { return bytes - held.total(); }
};

/// A rank does one event after another.
struct Event {
    enum class Kind {
        Compute,
        Launch,  // of operations between ranks, which run beside computation
        Wait,    // for the end of a launch
    };
    Kind kind;
    double seconds = 0;          // of Compute
    double product_seconds = 0;  // of Compute: in matrix products
    double dense_seconds = 0;    // of Compute: in products and attention, which need all multiprocessors
    double host_seconds = 0;     // of Compute: that the host takes to launch it
    bool is_optimizer = false;   // of Compute: the optimizer's update
    int64_t launch = -1;         // of Launch and Wait: an index into RankTrace::launches
};

/// Operations that are launched together in one group of ranks.
struct Launch {
    std::string group;  // the name of its axes
    int channel = 0;    // number of the group among this rank's groups of this name
    double seconds = 0;
    bool in_update = false;  // of the optimizer
    bool is_beside = true;  // it runs beside the rank's computation; else the rank moves the data in its wait
    double held = 0;        // the share of the multiprocessors that it holds while it is under way
    /// Messages: the world's ranks to which this rank sends, and from which it receives.
    std::vector<int> send_to = {}, receive_from = {};
    const char* pass = "";  // the kind of work in which it is launched (observe::ComputeKind): "forward", ...
    comm::OpKind kind = comm::OpKind::AllGather;  // of the first operation
    comm::Purpose purpose = {};                   // of the first operation
    comm::MovedBytes moved = {};
    bool is_message() const { return !send_to.empty() || !receive_from.empty(); }
};

struct RankTrace {
    int rank = 0;
    PeakMemory peak;
    std::map<ops::WorkKind, double> compute_seconds;  // without the optimizer
    double flops = 0;
    double score_bytes = 0;  // of the largest attention that holds all its scores at once (ops/attention.h)
    std::map<std::string, comm::MovedBytes> moved;  // by the name of a group
    /// Between processors of one node: the memory that this rank shares with the others for collectives, at
    /// least, and with it the memory of the others that this rank reads. A process's resident set has both.
    int64_t shared_bytes = 0, mapped_shared_bytes = 0;
    comm::RecordedConnections connections = {};
    int64_t connection_bytes = 0;  // that NCCL takes of a GPU for them
    int64_t peer_bytes = 0;        // that neighbours write to (comm/peer_memory.h)
    /// Memory of a GPU that is no tensor's.
    int64_t beside_bytes() const { return connection_bytes + peer_bytes; }
    std::vector<Event> events;
    std::vector<Launch> launches;
    int64_t num_records = 0;  // operations of layers that ran; all others were repeated
};

/// Whether each operation of a layer runs, or only those that differ (parallel/repeated_ops.h). The trace is
/// the same.
enum class Repeats { Run, FromRecords };

/// Runs a step of one rank on tensors without data. Throws as Trainer does. REQUIRES: an ops::OpsContext
/// exists.
RankTrace trace_rank(const train::TrainerOptions& options, const layout::MeshShape& shape, int rank,
                     const Machine& machine, Repeats repeats = Repeats::FromRecords);

}  // namespace argosy::plan
