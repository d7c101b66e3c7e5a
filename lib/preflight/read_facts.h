// Collects the facts of this rank and this node.
#pragma once

#include <filesystem>
#include <string>

#include "preflight/facts.h"
#include "preflight/sources.h"

namespace argosy::preflight {

/// Facts that the caller passes in, because reading them needs libraries that this code does not depend on.
struct LibraryVersions {
    int rank = 0;
    std::string mpi_library;
    std::string cuda_version = {}, nccl_version = {};  // empty in builds without them
};

RankFacts read_rank_facts(const Sources& sources, const LibraryVersions& versions);

/// One rank of each node calls this. REQUIRES: the job's ranks have not used a GPU yet, so that GPU memory in
/// use belongs to others. Takes a few seconds, up to 25 if nvidia-smi hangs. Tries to write to `dump_folder`
/// unless it is empty.
NodeFacts read_node_facts(const Sources& sources, const std::filesystem::path& dump_folder);

}  // namespace argosy::preflight
