// The machine on which a step is planned: the speeds of its devices and of the links between them, and the
// memory of a device. The speeds that a step reaches are shares of the makers' figures.
//
// Costs, in seconds:
//   a product or attention   max(FLOPs * slowest / (peak * share), bytes / (memory speed * share)) + launch
//                            On GPUs it takes longer while collectives hold multiprocessors
//                            (plan/simulate.h).
//   a pass over memory       bytes / (memory speed * share) + launch
//   a collective of n ranks  max over the links that a ring through all ranks crosses, of
//                            (bytes that the ring moves over the link) / speed; plus a latency for each hop.
//                            Between nodes a ring for each rank of the node shares the adapters, so a group
//                            with k ranks on each node has the adapters of k ranks.
//   an all-to-all            max over the links in a node and those between nodes, of (the bytes that a rank
//                            exchanges over the link) / speed; plus a latency for each. The links' shares of
//                            the bytes are those of equal parts.
//   a message                bytes / speed + latency
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/recording.h"
#include "ops/work.h"

namespace argosy::plan {

/// A link of one device, in one direction.
struct Link {
    double bytes_per_second = 0;  // that a collective reaches
    double latency_seconds = 0;   // of a hop
    std::string source = {};      // where the figures come from, for people
};

/// The links in a node, or those between nodes.
struct Links {
    Link usual;
    std::map<comm::OpKind, Link> measured = {};  // in place of `usual` (take_links)
    const Link& of(comm::OpKind kind) const;
};

/// The bytes that an operation moves over its busiest link in a node and between nodes, and the hops there.
struct Route {
    struct Part {
        double bytes = 0;
        int hops = 0;
    };
    Part in_node, between_nodes;
};
/// `num_nodes`: of the ranks of the operation's group; of a message: of its two ranks.
Route route_of(const comm::RecordedOp& op, int num_nodes);

struct Machine {
    std::string name;
    bool is_gpu = false;
    int ranks_per_node = 8;
    int64_t memory_bytes = 0;    // of a device; 0: unknown
    int64_t reserved_bytes = 0;  // of a device: memory that neither tensors nor NCCL can have
    int capability = 0;  // of a GPU: 90 for 9.0. It decides which products there are (cublas/matmul.h)
    // Peaks per second; narrow: bf16.
    double float8_flops = 0, narrow_flops = 0, fp32_flops = 0, fp64_flops = 0;
    double memory_speed = 0;  // bytes per second
    int64_t ring_bytes = 0;  // of the ring in which a rank of a group publishes to its node; 0: there is none
    Links in_node, between_nodes;
    // The shares of the peaks that are reached.
    double product_share = 1, attention_share = 1, pass_share = 1;
    double flash_share = 1;       // attention_share of FlashAttention (ops::Work::by_flash)
    double launch_seconds = 0;    // of an operation, on its device
    double host_seconds = 0;      // that the host takes to launch an operation which no graph holds
    double slowest_of_ranks = 1;  // the time of a product on the slowest rank, over that of a usual one
    int multiprocessors = 0;      // of a GPU
    /// Of an NCCL communicator (nccl::Comm): each holds a multiprocessor during a collective, and memory.
    int collective_channels = 0, message_channels = 0;
    bool peer_copies = false;      // exchanges along a ring within a node need none (comm/peer_memory.h)
    std::string calibration = {};  // of a GPU: where product_share comes from
    std::string compared = {};     // of a GPU: how far plans of its kind were from published runs
    /// The sizes of products and attention whose speed was measured.
    struct Size {
        ops::WorkKind kind;
        int64_t rows, columns, terms;  // as in ops::Work
        auto operator<=>(const Size&) const = default;
    };
    std::map<Size, double> measured_flops = {};  // per second

    double peak(at::ScalarType type) const;
    double seconds(const ops::Work& work) const;
    /// The time of operations that a rank of the group `world_ranks` launches together.
    double seconds(std::span<const comm::RecordedOp> launch, const std::vector<int>& world_ranks) const;
    /// The number of nodes on which ranks of the world are.
    int num_nodes(const std::vector<int>& world_ranks) const;
    /// The share of the multiprocessors that a collective under way holds.
    double held_by_collective() const;
    /// The memory that NCCL takes for a rank's communicators.
    int64_t bytes_of(const comm::RecordedConnections& made) const;
};

/// The expected largest of `count` numbers with the standard normal distribution.
double expected_largest(int count);

/// Replaces the links of `machine` by those in `paths`, files of nccl-bench that are separated by commas
/// (links.cpp). Collectives that no file has get the link of the first file that has one. Links that no file
/// has stay. Throws UserError for a file that is no such report, has too few sizes, or was measured
/// between GPUs for a processor, or in the host memory of one node for GPUs, or with another number of ranks
/// on a node than `machine` has for a job of `num_ranks`. The name of the GPU is not compared: a report says
/// what its machine calls it.
void take_links(Machine& machine, const std::string& paths, int num_ranks);

/// Measures this processor for a step of `num_ranks` ranks, each with as many threads as this process:
/// passes over memory, and the products and attention of `work`, one of each size that does not take long.
/// The ranks share the machine's memory evenly. Ranks exchange data
/// through the machine's memory. More threads than cores share them. REQUIRES: all work is of one type.
Machine measure_processor(std::span<const ops::Work> work, at::ScalarType type, int num_ranks);

}  // namespace argosy::plan
