// Compares the GPUs of nodes: whether they are as many and of one kind, and whether NVLink connects them as
// it does on other nodes.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/median.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

/// A property that all GPUs should have in common.
struct Property {
    const char* check;
    std::string (*value)(const Gpu&);
    const char* remedy;
};
constexpr Property kProperties[] = {
    {"GPU models", [](const Gpu& gpu) { return gpu.name; },
     "ask for nodes of one kind, because all ranks wait for the slowest GPU"},
    {"GPU drivers", [](const Gpu& gpu) { return gpu.driver; }, "install the same driver on all nodes"},
    {"GPU PCIe generation",
     [](const Gpu& gpu) { return fmt::format("{}", gpu.most_pcie_generation.value_or(0)); },
     "check the slot and the firmware's settings"},
};

/// Whether NVLink's switches connect the GPU with the others of its node.
bool has_switches(const Gpu& gpu) { return !gpu.fabric_state.empty() && gpu.fabric_state != "Not Supported"; }

/// Whether NVLink's switches connect GPUs of several nodes. Otherwise the domain is zero.
bool reaches_other_nodes(const Gpu& gpu) {
    return gpu.fabric_domain.find_first_of("123456789abcdefABCDEF") != std::string::npos;
}

/// The links of GPUs that should have as many: of one model, at one place on their nodes, because bridges may
/// connect only some GPUs of a node. The GPUs of a single node are compared with each other.
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
        for (auto& [kind, values] : links) links_[kind] = upper_median(std::move(values));
        for (auto& [kind, values] : rates) rates_[kind] = upper_median(std::move(values));
    }

    /// Says what is wrong with the links of GPU number `i` of a node; empty: nothing.
    std::string problem(const Gpu& gpu, size_t i) const {
        constexpr double kMinShare = 0.99;  // the rates are rounded
        if (!gpu.active_nvlinks) return "";
        const double links = links_.at(kind(gpu, i)), rate = rates_.at(kind(gpu, i));
        const char* others = one_node_ ? "most GPUs of the node" : "the same GPU of most nodes";
        if (static_cast<double>(*gpu.active_nvlinks) < links)
            return fmt::format("{} NVLinks are active, but {} on {}", *gpu.active_nvlinks, links, others);
        if (gpu.nvlink_gigabytes >= kMinShare * rate) return "";
        return fmt::format("its NVLinks carry {:.0f} GB/s, but {:.0f} on {}", gpu.nvlink_gigabytes, rate,
                           others);
    }

  private:
    using Kind = std::pair<std::string, size_t>;
    Kind kind(const Gpu& gpu, size_t i) const { return {gpu.name, one_node_ ? 0 : i}; }

    bool one_node_;
    std::map<Kind, double> links_, rates_;
};

}  // namespace

std::vector<Finding> check_num_gpus(const Cluster& cluster) {
    NodeFindings found("number of GPUs", Blame::Always);
    const auto is_known = [](const NodeFacts& node) { return !node.gpus.empty() || !node.gpus_out_of_time; };
    std::vector<double> counts;
    for (const NodeFacts& node : cluster.nodes) {
        if (is_known(node)) counts.push_back(static_cast<double>(node.gpus.size()));
    }
    const double expected = upper_median(std::move(counts));
    for (const NodeFacts& node : cluster.nodes) {
        const auto count = static_cast<double>(node.gpus.size());
        if (!is_known(node) || count == expected) continue;
        const bool fewer = count < expected;
        found.add(node.name, {fewer ? Severity::Fail : Severity::Warn,
                              fmt::format("{}, but {} on other nodes", count, expected),
                              fewer ? "leave the node out; check nvidia-smi and the kernel's log there"
                                    : "ask for nodes of one kind"});
    }
    return found.findings(cluster);
}

std::vector<Finding> check_gpus_alike(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const Property& property : kProperties) {
        std::map<std::string, int> gpus_by_value;
        for (const NodeFacts& node : cluster.nodes) {
            for (const Gpu& gpu : node.gpus) ++gpus_by_value[property.value(gpu)];
        }
        if (gpus_by_value.size() < 2) continue;
        const auto usual =
            std::ranges::max_element(gpus_by_value, {}, [](const auto& entry) { return entry.second; });
        NodeFindings found(property.check);
        for (const NodeFacts& node : cluster.nodes) {
            for (const Gpu& gpu : node.gpus) {
                const std::string value = property.value(gpu);
                if (value == usual->first) continue;
                found.add(node.name,
                          {Severity::Warn, fmt::format("'{}', but most GPUs have '{}'", value, usual->first),
                           property.remedy});
            }
        }
        append(found.findings(cluster), findings);
    }
    return findings;
}

/// Without switches, bridges may connect some GPUs only, so fewer links get WARN on one or two nodes, of
/// which no majority shows what is usual.
std::vector<Finding> check_nvlinks(const Cluster& cluster) {
    const UsualLinks usual(cluster);
    NodeFindings found("NVLinks", Blame::Minority);
    for (const NodeFacts& node : cluster.nodes) {
        std::map<std::pair<Severity, std::string>, std::string> gpus_by_problem;
        for (size_t i = 0; i < node.gpus.size(); ++i) {
            const Gpu& gpu = node.gpus[i];
            const bool fails = has_switches(gpu) || cluster.nodes.size() > 2;
            for (const std::string& problem : {usual.problem(gpu, i), gpu.fabric_problem}) {
                if (problem.empty()) continue;
                std::string& numbers = gpus_by_problem[{fails ? Severity::Fail : Severity::Warn, problem}];
                numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", i);
            }
        }
        for (const auto& [problem, numbers] : gpus_by_problem) {
            found.add(node.name, {problem.first, fmt::format("GPU {}: {}", numbers, problem.second),
                                  "leave the node out; see nvidia-smi nvlink -s and -e, and the kernel's log "
                                  "(XID 74, SXid); reset the GPUs, or restart the node"});
        }
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
    NodeFindings found("NVLink registration", Blame::Minority);
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
    NodeFindings found("NVLink clique");
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
