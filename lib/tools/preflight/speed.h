// Measures how fast the ranks of a job do the work of its training step: matrix products, the step's own
// operations between ranks with their real groups and, up to a limit, their real sizes (`StepOperation`), and
// transfers between pairs of nodes. Then puts the devices under stress (facts.h).
//
// Sources: speed.cpp chooses the operations and runs the measurements in order; meter.cpp measures;
// stress.cpp has measure_stress() and look_again().
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/control_channel.h"
#include "bench/measure.h"
#include "comm/recording.h"
#include "cuda/device.h"
#include "layout/mesh_shape.h"
#include "mpi/comm.h"
#include "preflight/facts.h"
#include "preflight/sources.h"

namespace argosy::preflight {

/// Launches of a training step that differ only in their number: one operation, or several grouped. A launch
/// runs over the ranks that differ only on `axes`, or with parts > 1 over blocks of these ranks (see
/// MeshShape::group).
struct StepLaunches {
    layout::AxisSet axes;
    int parts = 1;
    comm::OpKind kind;
    ElementType type;
    int64_t elements;  // of one launch, in the larger of a rank's two buffers
    int64_t num_launches = 1;
};

/// Adds a recorded launch of a rank. Leaves out the totals of a step over all ranks, which are scalars, and
/// receives, because each belongs to a send.
void add_launch(std::vector<StepLaunches>& step, std::span<const comm::RecordedOp> launch,
                const layout::MeshShape& mesh);

/// One operation between ranks (OpKind), over all groups of some axes of the mesh.
struct StepOperation {
    std::string axes;                      // "dp_shard", as the mesh names them
    std::vector<std::vector<int>> groups;  // of equal sizes; each rank is in exactly one group
    bench::Case kind;                      // the measurement
    size_t launch_bytes;                   // bytes of one launch in the step; `kind` may have fewer
    comm::OpKind op = comm::OpKind::AllGather;

    std::string name() const;  // "all_gather over dp_shard"
    double bus_bytes() const;  // of the measurement: bus bandwidth times seconds
};

/// The operations to measure: among the launches of one kind over the same groups, the size that moves the
/// largest number of bytes in a step. `step` has the launches of a rank of each pipeline stage. A measurement
/// has at most `max_bytes`. Launches with less than one element per rank are left out.
std::vector<StepOperation> step_operations(std::span<const StepLaunches> step, const layout::MeshShape& mesh,
                                           size_t max_bytes);

/// Rounds in which nodes are paired. A node has a different partner in each round. If the number of nodes is
/// odd, one node per round is alone (its own partner). The full schedule pairs every node with every other
/// node. The function returns at most `max_rounds` rounds, spread evenly over the full schedule. In the first
/// round, partners have neighbouring numbers: such nodes are often at the same switch.
using Round = std::vector<int>;  // partner of each node
std::vector<Round> rounds_of_pairs(int num_nodes, int max_rounds);

/// The speed between two nodes: for the ranks at the same place on both, the bytes a second that each sends
/// while it receives as much.
struct PairSpeed {
    int first, second;  // nodes; first < second
    std::vector<double> rails = {};
    int64_t num_wrong = 0;  // elements

    double rate() const;  // the sum of the rails
};

struct SpeedOptions {
    at::ScalarType type;          // element type of the matrix products
    std::string backend;          // see bench::Options::backend
    double timeout_seconds = 60;  // for each wait for other ranks
    double seconds_each = 0.5;    // approximate time of one measurement
    /// No measurement begins later than this after the start of the pre-flight. One that has begun ends
    /// within its own limits.
    double deadline_seconds = 120;
    /// Maximum bytes of one operation. Larger operations of the step are measured at this size, because links
    /// get no faster beyond it. Over slow links, operations have a size that takes about `seconds_each`.
    size_t max_bytes = 256 << 20;
    /// Time of the products of measure_stress(). None: 10 s on a GPU, 0.2 s on a processor. 0: no products.
    std::optional<double> sustain_seconds = {};

    /// The time for a look at the GPUs with nvidia-smi and DCGM: Sources' default, or less, because the other
    /// ranks wait at most `timeout_seconds` meanwhile.
    double gpu_seconds() const;
};

struct OperationSpeed {
    StepOperation operation;
    std::vector<double> bus_bandwidths;   // bytes a second, for each group
    std::vector<int64_t> num_wrong = {};  // wrong elements of the result, by rank
    std::vector<double> planned = {};     // bus bandwidths that a plan assumes, for each group; empty: none

    double share_of_plan(size_t group) const { return bus_bandwidths[group] / planned[group]; }
    size_t furthest_below_plan() const;  // the group
};

/// The links that a plan assumes between devices.
struct PlannedLinks {
    std::string name;  // of the devices, as plans name them
    /// The seconds of operations that a rank of the group `ranks` launches together.
    std::function<double(std::span<const comm::RecordedOp>, const std::vector<int>& ranks)> seconds;
};
/// Sets what a plan assumes of each operation.
void add_planned(const PlannedLinks& links, std::vector<OperationSpeed>& operations);

struct Speeds {
    std::vector<double> products;  // FLOP/s of each rank while all ranks compute
    std::vector<OperationSpeed> operations;
    /// For each node, the sum of its rails. Empty if there is only one node.
    std::vector<double> nodes;
    /// For each rank of each node, the bytes a second that it sends to the rank at its place on another node
    /// while it receives as much: the maximum over several partner nodes. 0: no partner had as many ranks.
    std::vector<std::vector<double>> rails = {};
    /// All measured pairs, in the order of the rounds. The hunt for bad nodes begins after the first
    /// `num_pairs_before_hunt` of them.
    std::vector<PairSpeed> pairs = {};
    size_t num_pairs_before_hunt = 0;
    bool pairs_cut_short = false;            // by the deadline: perhaps a good node had only bad partners
    std::vector<std::string> not_done = {};  // the measurements that the deadline left out
    std::string library = {};                // name and version of the library that moved the data
    std::vector<cuda::Device> devices = {};  // by rank; empty without GPUs

    /// Whether data moved between buffers in GPU memory, not in host memory.
    bool between_devices() const { return !devices.empty(); }
};

/// Measures on all ranks of a job. Each call is COLLECTIVE over them and returns the same on all of them. In
/// tests a simulated cluster takes the place of the ranks.
class Meter {
  public:
    virtual ~Meter() = default;

    virtual std::string library() const = 0;
    /// The devices of all ranks, between whose memories data moves; empty without GPUs.
    virtual std::vector<cuda::Device> devices() const = 0;
    /// The device that this rank's products run on.
    virtual c10::Device device() const { return c10::kCPU; }
    /// Seconds since the pre-flight began, by rank 0's clock.
    virtual double seconds_passed() = 0;

    /// FLOP/s of each rank while all ranks compute.
    virtual std::vector<double> products() = 0;
    virtual OperationSpeed operation(const StepOperation& operation) = 0;
    /// The pairs of a round exchange data at the same time.
    virtual std::vector<PairSpeed> pairs(const Round& round) = 0;
};

/// COLLECTIVE over `world`. Calls of the meter throw TimeoutError, which names the missing ranks. `started`
/// is the time at which the pre-flight began (seconds_now). REQUIRES: the arguments outlive the meter.
std::unique_ptr<Meter> make_meter(const mpi::Comm& world, const bench::ControlChannel& control,
                                  const std::vector<Node>& nodes, const SpeedOptions& options,
                                  double started);

/// COLLECTIVE over the meter's ranks, up to the deadline: products, the operations, rounds of pairs of nodes,
/// and the hunt for bad nodes.
///
/// The hunt: a pair is slow or wrong because of one of its nodes, because other pairs load the links between
/// switches, or because a link is bad. Few pairs in a quiet network show which nodes are at fault:
/// 1. A node is good if each of its ranks, with some partner and right data, reached three quarters of the
///    upper quartile of the nodes. The median would be too low where many nodes are bad or met bad ones.
/// 2. A node that is not good yet gets a good partner, twice, the second time another one if there is one:
///    the nearest by number that is free. Few nodes exchange in a round, because links between switches may
///    carry less than all of their nodes send. A node that proves good is a partner for others.
/// Rounds: none if all nodes are good, about 3 log2(nodes) at most.
Speeds measure_speeds(Meter& meter, const std::vector<Node>& nodes,
                      const std::vector<StepOperation>& operations, double deadline_seconds);

// For the two functions below, only rank 0 has all facts in `cluster`. Another rank has the number and the
// node of each rank, and if it is the first rank of its node, the facts about that node.

/// COLLECTIVE over `world`: puts the device of every rank under stress. Sets the ranks' `stress` and what
/// nvidia-smi reports meanwhile in rank 0's `cluster`. REQUIRES: the thread holds an OpsContext.
void measure_stress(const mpi::Comm& world, const bench::ControlChannel& control, Meter& meter,
                    const SpeedOptions& options, Cluster& cluster);

/// COLLECTIVE over `world`, for a job on GPUs: reads the errors of GPUs again, which may have grown since
/// they were first read. Sets them in rank 0's `cluster`. `sources` are those of this node. nvidia-smi is not
/// asked if it has hung before.
void look_again(const mpi::Comm& world, const bench::ControlChannel& control, const Sources& sources,
                Cluster& cluster);

}  // namespace argosy::preflight
