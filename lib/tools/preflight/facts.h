// Facts that each rank collects about itself, and one rank of each node about the node, before a run. Facts
// are plain values that are sent to rank 0 as text. read_facts.h collects the facts and leaves out those
// that cannot be read; diagnose.h decides what is wrong.
//
// Stress is the work that the pre-flight gives to the devices of all ranks for some seconds: the same matrix
// product again and again (measure_stress in speed.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "mpi/agreement.h"

namespace argosy::preflight {

inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct Variable {
    std::string name, value;
    std::string file = {};  // the file in which NCCL finds the variable; empty: the environment
};

/// The results and rates of a rank's device under stress.
struct StressResult {
    std::string device;   // the driver's name of the GPU, or the instruction set of a processor's kernels
    std::string library;  // that multiplies, with its version
    std::string bus_id;   // of the GPU: "0000:3b:00.0"; empty on a processor
    double seconds = 0;   // for which the products run
    double flops_per_second = 0;  // of these products
    /// A hash of the product, equal on all healthy devices of one kind. Empty if devices of one kind may
    /// differ.
    std::string hash;
    int64_t num_products = 0;
    int64_t num_different = 0;  // products that differ from the rank's first

    /// Healthy devices of one kind compute the same bits: "NVIDIA H200, cuBLAS 13.1.0".
    std::string kind() const { return device + ", " + library; }
    /// "GPU 0000:3b:00.0", or "processor".
    std::string name() const { return bus_id.empty() ? "processor" : "GPU " + bus_id; }
};

/// The GPUs that CUDA shows a rank before the measurements.
struct VisibleGpus {
    int count = 0;
    std::string own;        // PCI address of the GPU that the rank would compute on; empty: there is none
    std::string host;       // the machine of that GPU, as NCCL identifies machines (nccl/device_id.h)
    std::string problem;    // the error of CUDA if the rank cannot use its GPU; empty: none
    std::string requested;  // the GPUs that the job asked Slurm for (Environment::requested_gpus)
};

struct RankFacts {
    int rank = 0;
    std::string node;  // SLURMD_NODENAME, else the host's name
    std::vector<Variable> variables;
    std::string executable_hash;
    std::string argosy_version, mpi_library;
    std::string cuda_version, nccl_version;  // empty in builds without them
    int64_t memlock_bytes = kUnlimited;
    std::string cpus;  // the CPUs that the rank may run on: "0-3,8"
    int num_cpus = 0;
    std::optional<StressResult> load = {};  // under stress; none before the measurement
    /// None if the rank uses no GPU: a build without CUDA, --backend mpi, ARGOSY_DEVICE=cpu.
    std::optional<VisibleGpus> visible_gpus = {};

    /// Null if the variable is not set.
    const Variable* variable(const std::string& name) const;
};

struct Space {
    int64_t total_bytes = 0, free_bytes = 0;
};

struct Interface {
    std::string name;
    std::string state;                // "up", "down", "unknown" (counts as up)
    std::optional<int> megabits;      // per second
    bool leaves_the_machine = false;  // false for loopback, bridges, docker's and other virtual interfaces
};

/// One port of an InfiniBand or RoCE adapter.
struct AdapterPort {
    std::string adapter;  // "mlx5_0"
    int port = 1;
    std::string state, physical_state;  // "ACTIVE", "LinkUp"
    std::string link_layer;             // "InfiniBand" or "Ethernet"
    double gigabits = 0;                // per second

    bool active() const {
        return state == "ACTIVE" && (physical_state.empty() || physical_state == "LinkUp");
    }
    bool infiniband() const { return link_layer == "InfiniBand"; }
    /// Whether it is part of a fabric for data, and not an Ethernet adapter for management.
    bool carries_data() const { return active() && (infiniband() || gigabits >= kSlowestFabric); }
    static constexpr double kSlowestFabric = 50;  // Gb/s of Ethernet
};

struct Gpu {
    std::string bus_id, name, driver;
    std::optional<int64_t> throttle_reasons;    // NVML's bits
    std::optional<int64_t> uncorrected_errors;  // of memory, since the driver was loaded
    std::optional<int64_t> pcie_lanes, most_pcie_lanes, pcie_generation, most_pcie_generation;
    std::optional<int64_t> used_mebibytes, total_mebibytes;
    std::string mig_mode;  // nvidia-smi's text; empty if it gives none
    std::string uuid;      // "GPU-8932f937-..."
};

/// A GPU's PCI address as the kernel writes it: 0000:3b:00.0 for nvidia-smi's 00000000:3B:00.0.
std::string pci_address(const std::string& bus_id);

/// The answer of a command of NVIDIA's DCGM about the GPUs of a node.
struct DcgmAnswer {
    std::string command;  // "dcgmi diag"; "dcgmi" if it is not installed
    struct Fault {
        std::string what;     // "PCIe of GPU 3: ..."
        bool severe = false;  // DCGM says that the GPU has failed, or is to be isolated or reset
    };
    std::vector<Fault> faults = {};
    std::string not_judged = {};  // why there is no answer, and the parts that have no known form
};

/// The result of a trial write to a folder that the run will write to.
struct FolderFacts {
    std::string path;     // the folder, or the nearest existing folder above it
    std::string problem;  // why it cannot be written; empty if it can
    double bytes_per_second = 0;
    Space space;
};

struct NodeFacts {
    std::string name;
    std::string boot_id;  // equal on two nodes that are one machine; never empty
    std::optional<Space> shared_memory;
    int num_cpus = 0;
    std::vector<Interface> interfaces;
    std::vector<AdapterPort> adapter_ports;
    std::vector<Gpu> gpus;
    std::string gpus_problem;  // the error of nvidia-smi; empty: none
    bool has_nvidia_smi = true;
    bool gpus_hang = false;  // nvidia-smi hangs (GpuAnswer::hung)
    bool gpus_hang_under_load = false;
    bool gpus_out_of_time = false;  // in a look at rest, nvidia-smi was too slow for all calls
    std::vector<DcgmAnswer> dcgm;   // before the measurements and after them; empty without GPUs
    std::optional<FolderFacts> dump_folder;
    /// The GPUs under stress, and after all measurements. Empty if the job uses no GPUs.
    std::vector<Gpu> gpus_under_load, gpus_after;

    /// Adds a problem of nvidia-smi, unless `gpus_problem` has it already. Keeps the earlier ones, because a
    /// later problem may be more severe or less.
    void add_gpus_problem(const std::string& when, const std::string& problem);
};

/// A node of a job, with its ranks in ascending order.
struct Node {
    std::string name;
    std::vector<int> ranks;
};

/// Nodes in the order of their first ranks. `names` has the node's name for each rank.
std::vector<Node> group_by_node(const std::vector<std::string>& names);

/// The facts of all ranks and nodes.
struct Cluster {
    std::vector<RankFacts> ranks;                   // by rank
    std::vector<NodeFacts> nodes;                   // in the order of their first ranks
    std::vector<mpi::Difference> differences = {};  // of the settings and inputs of the run between ranks
    std::vector<int> late_ranks = {};               // that have not read the files of the run in time
};

/// The names of the nodes of `ranks`, each once, in the order of the ranks.
std::vector<std::string> nodes_of(const std::vector<int>& ranks, const Cluster& cluster);

/// The ranks whose devices were under stress, by the kind of their device.
std::map<std::string, std::vector<const RankFacts*>> ranks_by_kind(const Cluster& cluster);

/// The ranks of each node. REQUIRES: the cluster outlives the object.
class RanksByNode {
  public:
    explicit RanksByNode(const Cluster& cluster);

    /// The ranks on a node, ascending.
    const std::vector<const RankFacts*>& on(const NodeFacts& node) const;
    /// The variable of the node's first rank; null if it is not set. check_variables_alike() reports
    /// variables that differ between ranks.
    const Variable* variable(const std::string& name, const NodeFacts& node) const;

  private:
    std::unordered_map<std::string, std::vector<const RankFacts*>> ranks_;
};

/// The GPUs of a node that the job's ranks compute on: other GPUs may belong to another job. All GPUs, as
/// long as no rank has named its own (RankFacts::visible_gpus, RankFacts::load).
class UsedGpus {
  public:
    UsedGpus(const NodeFacts& node, const RanksByNode& ranks);
    bool has(const Gpu& gpu) const;

  private:
    std::set<std::string> addresses_;
};

/// The number of machines that the nodes are. In tests, several nodes are one machine.
size_t num_machines(const Cluster& cluster);

/// The facts as JSON in one line, whose keys the JSON report has as well (FORMAT.md).
/// Bytes that are not UTF-8 become replacement characters.
std::string pack(const RankFacts& facts);
std::string pack(const NodeFacts& facts);

/// The inverse of `pack`. Throws RunError if `pack` did not make the text.
RankFacts unpack_rank(const std::string& text);
NodeFacts unpack_node(const std::string& text);

}  // namespace argosy::preflight
