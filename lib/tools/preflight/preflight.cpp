#include "preflight/preflight.h"

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "cuda/device.h"
#include "nccl/comm.h"
#include "preflight/diagnose.h"
#include "preflight/read_facts.h"

namespace argosy::preflight {
namespace {

/// Limits on time and size if ranks share cores. Ranks that share a core may be slow without a fault, so the
/// speeds are measured briefly and not compared.
constexpr double kSecondsIfNotCompared = 0.02;
constexpr size_t kMaxBytesIfNotCompared = 1 << 20;

constexpr const char* kStressStep = "the sustained load";

LibraryVersions library_versions() {
    LibraryVersions versions{.mpi_library = mpi::library()};
    if (const int cuda = cuda::runtime_version(); cuda != 0) versions.cuda_version = cuda::version_text(cuda);
    if (nccl::version() != 0) versions.nccl_version = nccl::version_text();
    return versions;
}

/// The ranks with the names of their nodes, and without other facts.
std::vector<RankFacts> named_ranks(const std::vector<std::string>& nodes) {
    std::vector<RankFacts> ranks;
    for (const std::string& node : nodes)
        ranks.push_back({.rank = static_cast<int>(ranks.size()), .node = node});
    return ranks;
}

/// COLLECTIVE: rank 0 gets the facts of every rank, and the facts of each node from the node's first rank.
/// The other ranks get what measure_stress() and look_again() need.
Cluster gather_cluster(const mpi::Comm& world, const bench::ControlChannel& control, const Job& job,
                       const Sources& sources, const std::string& backend, std::vector<Node>& nodes) {
    RankFacts own_rank = read_rank_facts(sources, world.rank(), library_versions());
    const std::vector<std::string> node_names = control.exchange_texts(own_rank.node);
    nodes = group_by_node(node_names);
    const bool reports_node =
        std::ranges::any_of(nodes, [&](const Node& node) { return node.ranks.front() == world.rank(); });
    Cluster cluster{.ranks = named_ranks(node_names)};
    if (reports_node) cluster.nodes = {read_node_facts(sources, job.dump_folder)};
    control.barrier("the exchange of the nodes' facts");
    const int number_on_node = world.place_on_node().number;
    if (!own_rank.cuda_version.empty() && backend != "mpi" && Environment::read().device != "cpu")
        own_rank.visible_gpus = look_at_visible_gpus(number_on_node);
    for (int rank = 0; const std::string& text : control.gather_texts(pack(own_rank)))
        cluster.ranks[rank++] = unpack_rank(text);
    const std::string own_node = reports_node ? pack(cluster.nodes.front()) : "";
    for (int rank = 0; const std::string& text : control.gather_texts(own_node)) {
        if (rank++ > 0 && !text.empty()) cluster.nodes.push_back(unpack_node(text));
    }
    return cluster;
}

/// Says how many ranks share cores. None if each rank has its own core or GPU. Ranks of nodes that are the
/// same machine are counted together.
std::optional<std::string> shared_cores(const Cluster& cluster, const std::vector<Node>& nodes) {
    std::map<std::string, size_t> ranks_of_machine;  // by boot_id
    for (size_t node = 0; node < nodes.size(); ++node)
        ranks_of_machine[cluster.nodes[node].boot_id] += nodes[node].ranks.size();
    for (const NodeFacts& node : cluster.nodes) {
        const size_t num_ranks = ranks_of_machine[node.boot_id];
        if (node.gpus.empty() && num_ranks > static_cast<size_t>(node.num_cpus)) {
            return fmt::format("{} ranks share the {} cores of {}", num_ranks, node.num_cpus, node.name);
        }
    }
    return std::nullopt;
}

/// Decisions that rank 0 makes from the facts.
struct Decisions {
    bool measures, compares;
};

/// Whether node i has the ranks i * n to (i + 1) * n - 1, where a plan has them.
bool nodes_have_adjacent_ranks(const std::vector<Node>& nodes) {
    int next = 0;
    return std::ranges::all_of(nodes, [&](const Node& node) {
        return std::ranges::all_of(node.ranks, [&](int rank) { return rank == next++; });
    });
}

/// The speeds if no measurement can begin.
Speeds speeds_not_done(const std::vector<Node>& nodes, const std::vector<StepOperation>& operations) {
    Speeds speeds{.not_done = {kCheckNames.matrix_products}};
    for (const StepOperation& operation : operations) speeds.not_done.push_back(operation.name());
    if (nodes.size() > 1) speeds.not_done.emplace_back(kCheckNames.pairs_of_nodes);
    speeds.not_done.emplace_back(kStressStep);
    return speeds;
}

}  // namespace

std::optional<std::string> reason_not_to_measure(const Cluster& cluster) {
    const auto any_bad_node = [&] {
        return std::ranges::any_of(diagnose(cluster),
                                   [](const Finding& one) { return !one.bad_nodes.empty(); });
    };
    if (!check_visible_gpus(cluster).empty() || (!check_ranks_per_gpu(cluster).empty() && any_bad_node()))
        return "some ranks cannot use a GPU of their own";
    const bool differ = std::ranges::any_of(cluster.ranks, [&](const RankFacts& rank) {
        return rank.cuda_version.empty() != cluster.ranks.front().cuda_version.empty();
    });
    if (differ) return "only some ranks run a build with CUDA";
    if (!cluster.differences.empty()) return "ranks have different settings or inputs of the run";
    return std::nullopt;
}

Report run_preflight(const mpi::Comm& world, const bench::ControlChannel& control, const Job& job,
                     SpeedOptions options) {
    const double started = seconds_now();
    Report report{.title = job.title, .type = options.type};
    spdlog::info("pre-flight: settings and hardware");
    const Sources sources{.gpu_seconds = options.gpu_seconds(),
                          .folder_seconds = std::min(Sources{}.folder_seconds, options.timeout_seconds / 4)};
    report.cluster = gather_cluster(world, control, job, sources, options.backend, report.nodes);
    report.cluster.differences = job.differences;
    report.cluster.late_ranks = job.late_ranks;
    if (world.rank() == 0) {
        report.why_not_measured = reason_not_to_measure(report.cluster);
        report.why_not_compared =
            report.why_not_measured ? report.why_not_measured : shared_cores(report.cluster, report.nodes);
    }
    const auto [measures, compares] =
        control.exchange(Decisions{!report.why_not_measured, !report.why_not_compared}).front();
    if (!compares) {
        options.seconds_each = kSecondsIfNotCompared;
        options.max_bytes = kMaxBytesIfNotCompared;
        options.sustain_seconds = std::min(options.sustain_seconds.value_or(1), kSecondsIfNotCompared);
    }
    const auto operations = step_operations(job.step, job.mesh, options.max_bytes);
    if (measures) {
        spdlog::info("pre-flight: speeds");
        const auto meter = make_meter(world, control, report.nodes, options, started);
        report.speeds = measure_speeds(*meter, report.nodes, operations, options.deadline_seconds);
        if (meter->seconds_passed() >= options.deadline_seconds) {
            report.speeds.not_done.emplace_back(kStressStep);
        } else {
            if (options.sustain_seconds != 0) spdlog::info("pre-flight: sustained load");
            measure_stress(world, control, *meter, options, report.cluster);
        }
    } else {
        report.speeds = speeds_not_done(report.nodes, operations);
    }
    // Also after the deadline, because errors may show what slowed the measurements.
    if (options.deadline_seconds > 0 && report.speeds.between_devices())
        look_again(world, control, sources, report.cluster);
    if (world.rank() == 0 && measures && job.planned_links) set_planned(job, report);
    if (world.rank() == 0) set_findings(job, options.deadline_seconds, report);
    report.time = seconds_since_1970();
    report.seconds = seconds_now() - started;
    return report;
}

void set_planned(const Job& job, Report& report) {
    Speeds& speeds = report.speeds;
    if (!speeds.between_devices()) {
        report.why_no_plan = "a plan measures a processor's links itself";
        return;
    }
    const std::string& device = speeds.devices.front().name;
    const size_t on_node = report.nodes.front().ranks.size();
    const bool alike =
        std::ranges::all_of(speeds.devices, [&](const cuda::Device& each) { return each.name == device; }) &&
        std::ranges::all_of(report.nodes, [&](const Node& node) { return node.ranks.size() == on_node; });
    if (!alike || !nodes_have_adjacent_ranks(report.nodes)) {
        report.why_no_plan = alike ? "a plan takes the ranks of a node to be adjacent"
                                   : "a plan is of equal GPUs, equally many on each node";
        return;
    }
    const auto links = job.planned_links(device, static_cast<int>(on_node));
    if (!links) {
        report.why_no_plan = fmt::format("plans do not know {}", device);
        return;
    }
    report.planned_gpu = links->name;
    add_planned(*links, speeds.operations);
}

void set_findings(const Job& job, double deadline_seconds, Report& report) {
    report.findings = diagnose(report.cluster);
    if (!report.why_not_measured) append(find_not_done(report.speeds, deadline_seconds), report.findings);
    append(find_wrong_results(report.speeds, report.cluster), report.findings);
    if (!report.why_not_compared) {
        append(compare_speeds(report.speeds, report.cluster), report.findings);
        append(compare_stress(report.cluster, report.type), report.findings);
        append(compare_with_fabric(report.speeds, report.cluster), report.findings);
        append(compare_with_plan(report.speeds, report.cluster), report.findings);
    }
    const bool has_fail = std::ranges::count(report.findings, Severity::Fail, &Finding::severity) > 0;
    for (const std::string& check : job.only_warn) {
        if (std::ranges::find(report.findings, check, &Finding::check) == report.findings.end())
            spdlog::log(has_fail ? spdlog::level::warn : spdlog::level::info,
                        "pre-flight: --only-warn: no finding is called '{}'", check);
    }
    only_warn(job.only_warn, report.findings);
    std::ranges::stable_sort(report.findings, std::ranges::greater(), &Finding::severity);
}

}  // namespace argosy::preflight
