// What a rank sees of itself and what one rank of a node sees of its node, before a run: plain values, told
// to all ranks as text. Whoever reads them judges nothing (diagnose.h does), and leaves out what cannot be
// read.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace argosy::preflight {

inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct Variable {
    std::string name, value;
    std::string file = {};  // where NCCL reads it from; empty: the environment
};

struct RankFacts {
    int rank = 0;
    std::string node;  // SLURMD_NODENAME, else the host's name
    std::vector<Variable> variables;
    std::string executable_hash;
    std::string argosy_version, mpi_library;
    std::string cuda_version, nccl_version;  // empty in builds without them
    int64_t memlock_bytes = kUnlimited;
    int64_t open_files = kUnlimited;
    std::string cpus;  // those that it may run on: "0-3,8"
    int num_cpus = 0;
    std::vector<int> numa_nodes;  // that these lie on

    /// Null where it is not set.
    const Variable* variable(const std::string& name) const;
};

struct Space {
    int64_t total_bytes = 0, free_bytes = 0;
};

struct Interface {
    std::string name;
    std::string state;                // "up", "down", "unknown" (which is up)
    std::optional<int> megabits;      // a second
    bool leaves_the_machine = false;  // false for the loopback, bridges, docker's and other virtual ones
};

/// One port of an InfiniBand or RoCE adapter.
struct AdapterPort {
    std::string adapter;  // "mlx5_0"
    int port = 1;
    std::string state, physical_state;  // "ACTIVE", "LinkUp"
    std::string link_layer;             // "InfiniBand" or "Ethernet"
    double gigabits = 0;                // a second
    std::optional<int> pcie_lanes, most_pcie_lanes;
    std::optional<double> pcie_transfers, most_pcie_transfers;  // giga a second and lane

    bool active() const {
        return state == "ACTIVE" && (physical_state.empty() || physical_state == "LinkUp");
    }
    bool infiniband() const { return link_layer == "InfiniBand"; }
};

struct Gpu {
    std::string bus_id, name, driver;
    std::optional<int64_t> sm_megahertz, most_sm_megahertz;
    std::optional<int64_t> throttle_reasons;  // NVML's bits
    std::optional<int64_t> uncorrected_errors;
    std::optional<bool> remapping_pending, remapping_failed;
    std::optional<int64_t> pcie_lanes, most_pcie_lanes, pcie_generation, most_pcie_generation;
    std::optional<int64_t> used_mebibytes, total_mebibytes;
    std::string compute_mode, mig_mode, persistence;  // as nvidia-smi says; empty where it does not
    std::string uuid;                                 // "GPU-8932f937-..."
    std::string near_cpus;                            // of its NUMA node: "0-15"
};

/// An error of a GPU in the kernel's log.
struct Xid {
    std::string bus_id;
    int code = 0;
    std::optional<double> age_hours;
};

/// A folder that the run will write to, tried out.
struct FolderFacts {
    std::string path;     // itself, or the folder above it that is there already
    std::string problem;  // why it cannot be written; empty where it can
    double bytes_per_second = 0;
    Space space;
};

struct NodeFacts {
    std::string name;
    std::string boot_id;  // equal on two nodes that are one machine; never empty
    std::optional<Space> shared_memory;
    std::string huge_pages;                // "always", "madvise", "never"
    std::map<std::string, int> governors;  // how many CPUs run by which
    int num_cpus = 0;
    std::optional<double> load;  // of the last minute
    std::optional<int64_t> available_memory_bytes;
    std::vector<Interface> interfaces;
    std::vector<AdapterPort> adapter_ports;
    std::vector<Gpu> gpus;
    std::string gpus_problem;  // what went wrong when nvidia-smi was asked
    bool gpus_hang = false;    // it did not answer
    std::vector<Xid> xids;
    std::optional<FolderFacts> dump_folder;
};

/// As JSON in one line; bytes that are no UTF-8 become replacement characters.
std::string pack(const RankFacts& facts);
std::string pack(const NodeFacts& facts);

/// RunError where the text is none that `pack` made.
RankFacts unpack_rank(const std::string& text);
NodeFacts unpack_node(const std::string& text);

}  // namespace argosy::preflight
