#include "preflight/preflight.h"

#include <algorithm>

#include "base/clock.h"
#include "preflight/clock_offset.h"
#include "preflight/diagnose.h"
#include "preflight/gather.h"
#include "preflight/judge.h"
#include "preflight/read_facts.h"

namespace argosy::preflight {
namespace {

/// Of all ranks, and of each node as its first rank sees it.
void gather_facts(const mpi::Comm& world, const bench::RollCall& roll, const Job& job, double timeout_seconds,
                  Report& report) {
    const Sources sources;
    const Told told{.rank = world.rank(), .mpi_library = mpi::library()};
    for (const std::string& text :
         gather_texts(world, roll, pack(read_rank_facts(sources, told)), timeout_seconds)) {
        report.ranks.push_back(unpack_rank(text));
    }
    std::vector<std::string> names;
    for (const RankFacts& rank : report.ranks) names.push_back(rank.node);
    report.nodes = nodes_of(names);

    const bool first = std::ranges::any_of(
        report.nodes, [&](const Node& node) { return node.ranks.front() == world.rank(); });
    const std::string own = first ? pack(read_node_facts(sources, job.dump_folder)) : "";
    roll.assemble("telling what the nodes are");
    for (const std::string& text : gather_texts(world, roll, own, timeout_seconds)) {
        if (!text.empty()) report.node_facts.push_back(unpack_node(text));
    }
}

/// Ranks that share cores take turns: one of them seems slow for no reason of its own.
std::string why_not_judged(const Report& report) {
    for (const NodeFacts& node : report.node_facts) {
        int ranks = 0;
        for (size_t other = 0; other < report.nodes.size(); ++other) {
            if (report.node_facts[other].boot_id == node.boot_id)
                ranks += static_cast<int>(report.nodes[other].ranks.size());
        }
        if (ranks > node.num_cpus && node.gpus.empty()) {
            return fmt::format("{} ranks share {} cores of {}", ranks, node.num_cpus, node.name);
        }
    }
    return "";
}

}  // namespace

Report run_preflight(const mpi::Comm& world, const bench::RollCall& roll, const Job& job,
                     const SpeedOptions& options) {
    const double started = seconds_now();
    Report report{.title = job.title, .library = mpi::library(), .type = job.type};
    gather_facts(world, roll, job, options.timeout_seconds, report);
    report.speeds = measure_speeds(world, roll, report.nodes, job.loads, options);
    report.not_judged = why_not_judged(report);
    report.findings = diagnose(report.ranks, report.node_facts);
    const auto more =
        report.not_judged.empty() ? judge(report.speeds, report.nodes) : judge_results(report.speeds);
    report.findings.insert(report.findings.end(), more.begin(), more.end());
    std::ranges::stable_sort(report.findings, std::ranges::greater(), &Finding::verdict);
    report.seconds = seconds_now() - started;
    return report;
}

}  // namespace argosy::preflight
