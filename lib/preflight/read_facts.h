// Looking at this rank and this node.
#pragma once

#include <filesystem>
#include <string>

#include "preflight/facts.h"
#include "preflight/sources.h"

namespace argosy::preflight {

/// What a rank cannot see of itself without libraries that this module does not know.
struct Told {
    int rank = 0;
    std::string mpi_library;
    std::string cuda_version = {}, nccl_version = {};  // empty in builds without them
};

RankFacts read_rank_facts(const Sources& sources, const Told& told);

/// For one rank of each node, before this job's ranks have touched a GPU: memory that is in use then is
/// somebody else's. Takes a few seconds, up to 25 where nvidia-smi hangs. An empty `dump_folder` is not tried
/// out.
NodeFacts read_node_facts(const Sources& sources, const std::filesystem::path& dump_folder);

}  // namespace argosy::preflight
