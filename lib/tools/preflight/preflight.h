// Checks a set of nodes before a job runs on them: collects settings and hardware facts, measures the
// speed of the job's own operations, and reports what is wrong. Every measurement has a fixed time, every
// wait a timeout, and no measurement begins after the deadline, which is two minutes on any number of nodes.
//
// Sources: preflight.cpp runs the pre-flight; report.cpp writes the reports.
#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/control_channel.h"
#include "mpi/comm.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/speed.h"

namespace argosy::preflight {

/// The job's properties that the checks depend on.
struct Job {
    std::string title;  // "llama3 8B on 16 ranks (dp_shard 8 x tp 2)"
    layout::MeshShape mesh;
    std::vector<StepLaunches> step;  // of a rank of each pipeline stage
    std::filesystem::path dump_folder;
    std::vector<std::string> only_warn = {};        // checks whose FAIL counts as a WARN, by name
    std::vector<mpi::Difference> differences = {};  // of this run's settings and inputs between ranks
    std::vector<int> late_ranks = {};               // that have not read the files of the run in time
    /// The links that a plan assumes between GPUs of this name of the driver's, with so many ranks on a node.
    /// None: plans do not know them.
    std::function<std::optional<PlannedLinks>(const std::string& device, int ranks_per_node)> planned_links =
        nullptr;
};

struct Report {
    std::string title;
    Cluster cluster;
    std::vector<Node> nodes;
    Speeds speeds;
    at::ScalarType type;
    /// Why no speed was measured, and why the speeds are not compared with each other. None: they are. Speeds
    /// that were not measured are not compared, for the same reason.
    std::optional<std::string> why_not_measured, why_not_compared;
    std::string planned_gpu = {};   // whose links a plan assumes
    std::string why_no_plan = {};   // why there is none; empty: there is, or nothing was measured
    std::vector<Finding> findings;  // the worst first
    double seconds = 0;
    double time = 0;  // of the end, seconds since 1970

    Severity severity() const { return worst_severity(findings); }
    /// The nodes that the next start should leave out, each once.
    std::vector<std::string> bad_nodes() const;
};

/// COLLECTIVE over `world`: rank 0 gets the whole report. The reports of other ranks have no findings, and of
/// the facts only what measure_stress() needs (speed.h). If a rank cannot use its GPU, the report says so and
/// no speed is measured. Throws TimeoutError, which names the missing ranks, and UserError if every node has
/// more ranks than GPUs and no node is bad.
Report run_preflight(const mpi::Comm& world, const bench::ControlChannel& control, const Job& job,
                     SpeedOptions options);

/// Why no speed can be measured: some ranks have no GPU of their own or a build without CUDA, so the ranks
/// would choose different backends. None if too many ranks were started on every node, because then
/// choose_backend() throws the same UserError on all ranks.
std::optional<std::string> reason_not_to_measure(const Cluster& cluster);

/// Sets what a plan assumes of the measured operations, or why it assumes nothing.
void set_planned(const Job& job, Report& report);

/// Sets the findings of a report from its facts and speeds, the worst first.
void set_findings(const Job& job, double deadline_seconds, Report& report);

/// The value of "format", the first key of the JSON report. A later run overwrites no other files.
inline constexpr const char* kReportMark = "argosy pre-flight";

/// The report for people, and the one for programs (FORMAT.md). history.h has Prometheus's.
std::string text_report(const Report& report);
std::string json_report(const Report& report);

}  // namespace argosy::preflight
