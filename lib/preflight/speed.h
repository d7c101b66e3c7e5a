// Measures how fast the ranks of a job do the work of its training step: matrix products, the step's own
// operations between ranks with their real groups and, up to a limit, their real sizes (`StepOperation`), and
// transfers between pairs of nodes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
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
#include "preflight/nodes.h"

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
};

/// The operations to measure: among the launches of one kind over the same groups, the size that moves the
/// largest number of bytes in a step. `step` has the launches of a rank of each pipeline stage. A measurement
/// has at most `max_bytes`. Launches with less than one element per rank are left out.
std::vector<StepOperation> step_operations(std::span<const StepLaunches> step, const layout::MeshShape& mesh,
                                           size_t max_bytes);

struct SpeedOptions {
    at::ScalarType type;          // element type of the matrix products
    std::string backend;          // see bench::Options::backend
    double timeout_seconds = 60;  // for each wait for other ranks
    double seconds_each = 0.5;    // approximate time of one measurement
    /// Maximum bytes of one operation. Larger operations of the step are measured at this size, because links
    /// get no faster beyond it. Over slow links, operations have a size that takes about `seconds_each`.
    size_t max_bytes = 256 << 20;
    /// Time of the products of measure_loads(). None: 10 s on a GPU, 0.2 s on a processor. 0: no products.
    std::optional<double> sustain_seconds = {};
};

struct OperationSpeed {
    StepOperation operation;
    std::vector<double> bus_bandwidths;   // bytes a second, for each group
    std::vector<int64_t> num_wrong = {};  // wrong elements of the result, by rank
};

/// Two nodes between which data was corrupted.
struct WrongPair {
    int first, second;  // nodes
    int64_t num_wrong;  // elements
};

struct Speeds {
    std::vector<double> products;  // FLOP/s of each rank while all ranks compute
    std::vector<OperationSpeed> operations;
    /// For each node, the bytes a second that all of its ranks together send to another node while they
    /// receive as much: the maximum over several partner nodes. Empty if there is only one node.
    std::vector<double> nodes;
    /// The same for each rank of each node, which exchanges with the rank at its place on the other node.
    /// 0: no partner had as many ranks.
    std::vector<std::vector<double>> rails = {};
    std::vector<WrongPair> wrong_pairs = {};
    std::string library = {};                // name and version of the library that moved the data
    bool between_devices = false;            // true: buffers in GPU memory; false: in host memory
    std::vector<cuda::Device> devices = {};  // by rank; empty without GPUs
    c10::Device device = c10::kCPU;          // of this rank's products
};

/// COLLECTIVE over `world`: all ranks get the same speeds. Throws TimeoutError, which names the missing
/// ranks.
Speeds measure_speeds(const mpi::Comm& world, const bench::ControlChannel& control,
                      const std::vector<Node>& nodes, const std::vector<StepOperation>& operations,
                      const SpeedOptions& options);

/// COLLECTIVE over `world`: puts the device of every rank under load and sets the ranks' `load` in `cluster`,
/// on all ranks. `speeds` has the ranks' devices. REQUIRES: the thread holds an OpsContext.
void measure_loads(const mpi::Comm& world, const bench::ControlChannel& control, const Speeds& speeds,
                   const SpeedOptions& options, Cluster& cluster);

}  // namespace argosy::preflight
