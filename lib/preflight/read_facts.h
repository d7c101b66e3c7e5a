// Collects the facts of this rank and this node: from the environment, the kernel's files, nvidia-smi, and a
// trial write to the folder that the run will write to.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "preflight/facts.h"
#include "preflight/sources.h"

namespace argosy::preflight {

/// The libraries that this rank has loaded. The caller passes them in, so that a test can choose them.
struct LibraryVersions {
    std::string mpi_library;
    std::string cuda_version = {}, nccl_version = {};  // empty in builds without them
};

RankFacts read_rank_facts(const Sources& sources, int rank, const LibraryVersions& versions);

/// One rank of each node calls this. REQUIRES: the job's ranks have not used a GPU yet, so that GPU memory in
/// use belongs to others. Takes a few seconds, up to 25 if nvidia-smi hangs. Tries to write to `dump_folder`
/// unless that path is empty.
NodeFacts read_node_facts(const Sources& sources, const std::filesystem::path& dump_folder);

// The parts of read_node_facts(). Tests call each part with a made-up file tree.

/// The network interfaces, and the InfiniBand and RoCE adapters, from /sys.
std::vector<Interface> read_interfaces(const Sources& sources);
std::vector<AdapterPort> read_adapter_ports(const Sources& sources);

/// Total and free bytes of the folder's file system. None if the system call fails.
std::optional<Space> space_of(const std::filesystem::path& folder);

/// Writes 64 MiB, or as much as about three seconds allow, to a new file, waits until the data are on disk
/// (fsync), and removes the file. If `folder` does not exist yet, the file is in the nearest existing folder
/// above. Several ranks may call this at the same time.
FolderFacts try_folder(const std::filesystem::path& folder);

}  // namespace argosy::preflight
