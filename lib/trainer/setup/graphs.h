// Whether a run records forward and backward as CUDA graphs (compile.graphs).
//
// A rank sends and receives through communicators of their own. NCCL must start their operations in the order
// of the launches, and let them run at the same time. In a recording older versions run one after the other
// (nccl::runs_recorded_at_once()): if two neighbours receive before they send, both wait for ever.
#pragma once

#include <optional>
#include <string>

#include "config/job_config.h"
#include "mpi/comm.h"
#include "setup/rank_context.h"

namespace argosy::setup {

/// The facts of a job that the choice needs, the same on all ranks.
struct GraphFacts {
    bool has_experts = false;
    bool several_nodes = false;
    int nccl_version = 0, driver_version = 0;  // the lowest of all ranks
};

struct GraphChoice {
    bool on = false;
    std::string why_off = {};  // if the choice was "auto", and the configuration has a use for graphs
};

/// Whether a run on GPUs records forward and backward as graphs, if those would not hang. "auto" is off with
/// a pipeline or on several nodes, where graphs were not tried, and with experts or with async tensor
/// parallelism through comm.peer_copies, of which graphs cannot be recorded: there "true" throws UserError.
bool uses_graphs(const config::JobConfig& config, const GraphFacts& facts = {});

/// The same where messages in graphs may hang: there "auto" is off, and "true" throws UserError.
GraphChoice choose_graphs(const config::JobConfig& config, const GraphFacts& facts);

/// Why tensor parallelism must not overlap with products, for which it sends messages: the user demands
/// graphs (compile.graphs = true), which cannot have the messages, or may hang under the job's NCCL and
/// driver, if those are known. Empty if it may.
std::string why_no_overlap(const config::JobConfig& config, const std::optional<GraphFacts>& facts = {});

/// The facts of a job on GPUs. COLLECTIVE over `ranks`, those of the context.
GraphFacts graph_facts(const config::JobConfig& config, const mpi::Comm& ranks, const RankContext& context);

/// COLLECTIVE over `ranks`, those of the context: the configuration of a run on GPUs with the choice in place
/// of "auto". Rank 0 logs why graphs are off. Throws as choose_graphs(). On processors, the same
/// configuration.
config::JobConfig with_graphs_chosen(const config::JobConfig& config, const mpi::Comm& ranks,
                                     const RankContext& context);

}  // namespace argosy::setup
