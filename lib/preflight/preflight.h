// The checks of a set of nodes before a job runs on them: what they are set to and made of, how fast they are
// at the job's own work, and what is wrong with that. Under two minutes on any number of nodes: every
// measurement has its time, and every wait its limit.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/ranks.h"
#include "mpi/comm.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/load.h"
#include "preflight/nodes.h"
#include "preflight/speed.h"

namespace argosy::preflight {

/// What the checks must know of the job.
struct Job {
    std::string title;  // "llama3 8B on 16 ranks (dp_shard 8 x tp 2)"
    mesh::MeshShape mesh;
    std::vector<parallel::Traffic> traffic;  // of its step
    std::filesystem::path dump_folder;
};

struct Report {
    std::string title;
    std::string library;  // that measured: MPI's or NCCL's name and version
    Cluster cluster;
    std::vector<Node> nodes;
    Speeds speeds;
    at::ScalarType type;
    std::string not_judged;         // why the ranks' speeds say nothing; empty where they do
    std::vector<Finding> findings;  // the worst first
    double seconds = 0;

    Verdict verdict() const { return verdict_of(findings); }
    /// That the next start should do without, each once.
    std::vector<std::string> bad_nodes() const;
};

/// COLLECTIVE over `world`: the same on all ranks. Throws TimeoutError that names ranks which stay away.
Report run_preflight(const mpi::Comm& world, const bench::RollCall& roll, const Job& job,
                     SpeedOptions options);

/// The JSON report begins with these words. A later run replaces files that do, and no others.
inline constexpr const char* kReportMark = "argosy pre-flight";

/// For people, and for programs (FORMAT.md).
std::string text_report(const Report& report);
std::string json_report(const Report& report);

}  // namespace argosy::preflight
