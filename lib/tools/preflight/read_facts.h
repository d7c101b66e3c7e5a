// Collects the facts of this rank and this node: from the environment, the kernel's files, nvidia-smi, DCGM,
// and a trial write to the folder that the run will write to.
//
// Sources: read_rank_facts.cpp for a rank and for the folder; read_node_facts.cpp for the kernel's files;
// read_gpu_facts.cpp for nvidia-smi; dcgm.cpp for DCGM.
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

/// Asks CUDA which GPUs it shows this rank, which is number `number_on_node` (from 0) of the ranks that share
/// memory. Makes the rank's GPU current, as the measurements do, because that fails on a broken GPU. Does not
/// throw.
VisibleGpus look_at_visible_gpus(int number_on_node);

/// One rank of each node calls this. REQUIRES: the job's ranks have not used a GPU yet, so that GPU memory in
/// use belongs to others. Takes a few seconds, and longer if nvidia-smi, DCGM or the folder hangs, up to
/// their limits. Tries to write to `dump_folder` unless that path is empty.
NodeFacts read_node_facts(const Sources& sources, const std::filesystem::path& dump_folder);

// The parts of read_node_facts(). Tests call each part with a made-up file tree.

/// The network interfaces, and the InfiniBand and RoCE adapters, from /sys.
std::vector<Interface> read_interfaces(const Sources& sources);
std::vector<AdapterPort> read_adapter_ports(const Sources& sources);

/// Total and free bytes of the folder's file system. None if the system call fails.
std::optional<Space> space_of(const std::filesystem::path& folder);

/// Writes 64 MiB, or as much as about three seconds allow, to a new file, waits until the data are on disk
/// (fsync), and removes the file. A write that takes longer than `max_seconds` is a problem. If `folder` does
/// not exist yet, the file is in the nearest existing folder above. Several ranks may call this at the same
/// time.
FolderFacts try_folder(const std::filesystem::path& folder, double max_seconds);

// Facts about a node's GPUs. If the driver does not know the name of a field, the query of nvidia-smi tries
// the field's newer name, then omits the field.

struct GpuAnswer {
    bool has_nvidia_smi = true;
    std::vector<Gpu> gpus;
    std::string problem;       // one line; empty after success, and if there is no nvidia-smi
    bool hung = false;         // a call of nvidia-smi did not end within Sources::hang_seconds
    bool out_of_time = false;  // a call had less time than that, and was cut short or left out
    std::vector<DcgmAnswer> dcgm;
};

/// The questions to DCGM after those to nvidia-smi. The diagnosis takes some seconds, in which no rank may
/// use a GPU.
enum class Dcgm { NotAsked, Health, HealthAndDiagnosis };

/// Asks nvidia-smi, and DCGM if nvidia-smi lists GPUs.
GpuAnswer look_at_gpus(const Sources& sources, Dcgm questions);

/// The answers of DCGM, which may be installed or not, within the time of `calls`.
std::vector<DcgmAnswer> ask_dcgm(Dcgm questions, const Sources& sources, Calls& calls);

}  // namespace argosy::preflight
