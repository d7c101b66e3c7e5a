// Checks NVLink: whether it connects the GPUs of a node as it does on other nodes, and still does after the
// stress.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/median.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

/// Whether NVLink's switches connect the GPU with the others of its node.
bool has_switches(const Gpu& gpu) { return !gpu.fabric_state.empty() && gpu.fabric_state != "Not Supported"; }

/// Whether NVLink's switches connect GPUs of several nodes. Otherwise the domain is zero.
bool reaches_other_nodes(const Gpu& gpu) {
    return gpu.fabric_domain.find_first_of("123456789abcdefABCDEF") != std::string::npos;
}

/// The links, or their rate, that a group of GPUs usually has.
struct Usual {
    double value;      // the median
    bool of_majority;  // of at least three GPUs
};

constexpr double kEqualShare = 0.99;  // rates are rounded

Usual usual_of(const std::vector<double>& values) {
    const double usual = upper_median(values);
    const auto number = std::ranges::count_if(
        values, [&](double value) { return std::min(value, usual) >= kEqualShare * std::max(value, usual); });
    return {usual, values.size() > 2 && number > std::ssize(values) / 2};
}

/// The links of GPUs that should have as many: of one model, and without switches at one place on their
/// nodes, because bridges may connect only some GPUs of a node. The GPUs of a single node are compared with
/// each other.
class UsualLinks {
  public:
    explicit UsualLinks(const Cluster& cluster) : one_node_(cluster.nodes.size() == 1) {
        std::map<Kind, std::vector<double>> links, rates;
        for (const NodeFacts& node : cluster.nodes) {
            for (size_t i = 0; i < node.gpus.size(); ++i) {
                const Gpu& gpu = node.gpus[i];
                if (!gpu.active_nvlinks) continue;
                links[kind(gpu, i)].push_back(static_cast<double>(*gpu.active_nvlinks));
                rates[kind(gpu, i)].push_back(gpu.nvlink_gigabytes);
            }
        }
        for (const auto& [kind, values] : links) links_[kind] = usual_of(values);
        for (const auto& [kind, values] : rates) rates_[kind] = usual_of(values);
    }

    /// Says what is wrong with the links of GPU number `i` of a node; none: nothing is. The level is WARN
    /// if no majority shows what is usual, and within one node without switches.
    std::optional<std::pair<Severity, std::string>> problem(const Gpu& gpu, size_t i) const {
        if (!gpu.active_nvlinks) return std::nullopt;
        const Usual links = links_.at(kind(gpu, i)), rate = rates_.at(kind(gpu, i));
        const char* others = one_node_           ? "most GPUs of the node"
                             : has_switches(gpu) ? "most GPUs"
                                                 : "the same GPU of most nodes";
        const auto severity_for = [&](const Usual& usual) {
            return usual.of_majority && (has_switches(gpu) || !one_node_) ? Severity::Fail : Severity::Warn;
        };
        if (static_cast<double>(*gpu.active_nvlinks) < links.value) {
            return std::pair(severity_for(links), fmt::format("{} NVLinks are active, but {} on {}",
                                                              *gpu.active_nvlinks, links.value, others));
        }
        if (gpu.nvlink_gigabytes >= kEqualShare * rate.value) return std::nullopt;
        return std::pair(severity_for(rate), fmt::format("its NVLinks carry {:.0f} GB/s, but {:.0f} on {}",
                                                         gpu.nvlink_gigabytes, rate.value, others));
    }

  private:
    using Kind = std::pair<std::string, std::optional<size_t>>;
    Kind kind(const Gpu& gpu, size_t i) const {
        return {gpu.name, one_node_ || has_switches(gpu) ? std::nullopt : std::optional(i)};
    }

    bool one_node_;
    std::map<Kind, Usual> links_, rates_;
};

/// The problems of a node's NVLinks, each with the numbers of the GPUs that have it: "0, 3".
class GpusByProblem {
  public:
    void add(Severity severity, const std::string& problem, size_t gpu) {
        std::string& numbers = gpus_[{severity, problem}];
        numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", gpu);
    }
    void move_to(const NodeFacts& node, NodeFindings& found) const {
        for (const auto& [problem, numbers] : gpus_) {
            found.add(node.name, {problem.first, fmt::format("GPU {}: {}", numbers, problem.second),
                                  "leave the node out; see nvidia-smi nvlink -s and -e, and the kernel's log "
                                  "(XID 74, SXid); reset the GPUs, or restart the node"});
        }
    }

  private:
    std::map<std::pair<Severity, std::string>, std::string> gpus_;
};

/// For problems that other GPUs do not have: on the only node of a job, the node's other GPUs show what is
/// usual.
Blame blame_among_gpus(const Cluster& cluster) {
    return cluster.nodes.size() > 1 ? Blame::Minority : Blame::Always;
}

}  // namespace

std::vector<Finding> check_nvlinks(const Cluster& cluster) {
    const UsualLinks usual(cluster);
    NodeFindings found(kCheckNames.nvlinks, blame_among_gpus(cluster));
    for (const NodeFacts& node : cluster.nodes) {
        GpusByProblem problems;
        for (size_t i = 0; i < node.gpus.size(); ++i) {
            const Gpu& gpu = node.gpus[i];
            if (const auto problem = usual.problem(gpu, i)) problems.add(problem->first, problem->second, i);
            if (!gpu.fabric_problem.empty()) problems.add(Severity::Fail, gpu.fabric_problem, i);
        }
        problems.move_to(node, found);
    }
    return found.findings(cluster);
}

std::vector<Finding> check_nvlinks_under_stress(const Cluster& cluster) {
    NodeFindings found(kCheckNames.nvlinks_under_stress, Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        GpusByProblem problems;
        for (size_t i = 0; i < node.gpus.size(); ++i) {
            const Gpu& before = node.gpus[i];
            const auto after = std::ranges::find(node.gpus_after, before.bus_id, &Gpu::bus_id);
            if (after == node.gpus_after.end()) continue;
            if (before.active_nvlinks && after->active_nvlinks &&
                *after->active_nvlinks < *before.active_nvlinks)
                problems.add(Severity::Fail,
                             fmt::format("{} NVLinks are active after the load, but {} were before",
                                         *after->active_nvlinks, *before.active_nvlinks),
                             i);
            if (before.fabric_problem.empty() && !after->fabric_problem.empty())
                problems.add(Severity::Fail, after->fabric_problem + " after the load, but not before", i);
        }
        problems.move_to(node, found);
    }
    return found.findings(cluster);
}

/// CUDA does not start on a GPU whose registration is not completed. Gets WARN if no GPU of the job is
/// registered, because some drivers are said to report these fields wrongly.
std::vector<Finding> check_nvlink_registration(const Cluster& cluster) {
    const auto registered = [](const Gpu& gpu) {
        return gpu.fabric_state == "Completed" &&
               (gpu.fabric_status.empty() || gpu.fabric_status == "Success");
    };
    const bool some_are = std::ranges::any_of(
        cluster.nodes, [&](const NodeFacts& node) { return std::ranges::any_of(node.gpus, registered); });
    NodeFindings found(kCheckNames.nvlink_registration, blame_among_gpus(cluster));
    for (const NodeFacts& node : cluster.nodes) {
        for (const Gpu& gpu : node.gpus) {
            if (!has_switches(gpu) || registered(gpu)) continue;
            found.add(
                node.name,
                {some_are ? Severity::Fail : Severity::Warn,
                 fmt::format("state '{}', status '{}', but 'Completed' and 'Success' are needed",
                             gpu.fabric_state, gpu.fabric_status),
                 "leave the node out; check the services nvidia-fabricmanager and, for NVLink between nodes, "
                 "nvidia-imex there"});
        }
    }
    return found.findings(cluster);
}

/// Different domains are normal, because a job may need more nodes than a domain has.
std::vector<Finding> check_nvlink_cliques(const Cluster& cluster) {
    std::map<std::string, std::map<std::string, int>> gpus_by_clique;  // by domain
    for (const NodeFacts& node : cluster.nodes) {
        for (const Gpu& gpu : node.gpus) {
            if (reaches_other_nodes(gpu)) ++gpus_by_clique[gpu.fabric_domain][gpu.fabric_clique];
        }
    }
    NodeFindings found(kCheckNames.nvlink_clique);
    for (const NodeFacts& node : cluster.nodes) {
        for (const Gpu& gpu : node.gpus) {
            if (!reaches_other_nodes(gpu)) continue;
            const auto usual = std::ranges::max_element(gpus_by_clique.at(gpu.fabric_domain), {},
                                                        [](const auto& entry) { return entry.second; });
            if (gpu.fabric_clique == usual->first) continue;
            found.add(node.name,
                      {Severity::Warn,
                       fmt::format("{}, but most GPUs of the NVLink domain {} are in clique {}, which NVLink "
                                   "does not connect with this one",
                                   gpu.fabric_clique, gpu.fabric_domain, usual->first),
                       "ask for nodes of one NVLink partition"});
        }
    }
    return found.findings(cluster);
}

}  // namespace argosy::preflight
