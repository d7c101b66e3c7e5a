// Checks the InfiniBand and RoCE adapters that the ranks will use: whether they exist, are up, are as fast as
// the same adapters on other nodes, and all belong to one fabric.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/median.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

constexpr const char* kChoice = "NCCL_IB_HCA";
constexpr const char* kUcxChoice = "UCX_NET_DEVICES";

std::string full_name(const AdapterPort& port) {
    return port.port == 1 ? port.adapter : fmt::format("{}:{}", port.adapter, port.port);
}

NameList choice_on(const NodeFacts& node, const RanksByNode& ranks) {
    const Variable* variable = ranks.variable(kChoice, node);
    return {variable ? variable->value : "", NameList::Syntax::Nccl};
}

/// Whether the list has the port's whole name: "mlx5" chooses mlx5_1, but does not name it.
bool has_name_of(const NameList& list, const AdapterPort& port) {
    return !list.excludes() && std::ranges::any_of(list.entries(), [&](const NameList::Entry& entry) {
        return entry.name == port.adapter && list.matches(entry, port.adapter, port.port);
    });
}

/// The ports that the ranks of a node may use.
class ChosenPorts {
  public:
    ChosenPorts(const NodeFacts& node, const RanksByNode& ranks) : nccl_(choice_on(node, ranks)) {
        std::set<std::string> values;  // each rank may have a value of its own
        for (const RankFacts* rank : ranks.on(node)) {
            if (const Variable* variable = rank->variable(kUcxChoice)) values.insert(variable->value);
        }
        for (const std::string& value : values) ucx_.emplace_back(value, NameList::Syntax::WholeNames);
    }

    /// Whether a variable has the port's whole name.
    bool names(const AdapterPort& port) const {
        const auto has_name = [&](const NameList& list) { return has_name_of(list, port); };
        return has_name(nccl_) || std::ranges::any_of(ucx_, has_name);
    }
    bool for_nccl(const AdapterPort& port) const { return nccl_.chooses(port.adapter, port.port); }
    bool chooses(const AdapterPort& port) const { return for_nccl(port) || names(port); }

  private:
    NameList nccl_;
    std::vector<NameList> ucx_;
};

/// FAIL in jobs of several nodes, else WARN, because the fabric carries no data within one node.
Severity fail_between_nodes(const Cluster& cluster) {
    return cluster.nodes.size() > 1 ? Severity::Fail : Severity::Warn;
}

/// The state and the rate of the ports of one name and number on all nodes. REQUIRES: the cluster outlives
/// the object.
class PeerPorts {
  public:
    explicit PeerPorts(const Cluster& cluster)
        : num_nodes_(cluster.nodes.size()), max_severity_(fail_between_nodes(cluster)) {
        for (const NodeFacts& node : cluster.nodes) {
            for (const AdapterPort& port : node.adapter_ports) {
                Ports& peers = ports_[{port.adapter, port.port}];
                ++peers.count;
                peers.example = &port;
                if (!port.active()) continue;
                ++peers.num_active;
                if (port.carries_data()) ++peers.num_with_data;
                peers.rates[port.link_layer].push_back(port.gigabits);
            }
        }
        for (auto& [name, peers] : ports_) {
            for (const auto& [link_layer, rates] : peers.rates)
                peers.usual_rates[link_layer] = both_medians(rates);
        }
    }

    bool half_are_active(const AdapterPort& port) const {
        const Ports& peers = of(port);
        return 2 * peers.num_active >= peers.count;
    }
    /// The level of a finding on the port at most: WARN unless the port belongs to the fabric for data,
    /// because it carries data on most nodes, or a variable names it.
    Severity max_severity(const AdapterPort& port, const ChosenPorts& choice) const {
        const bool of_fabric = 2 * of(port).num_with_data > num_nodes_ || choice.names(port);
        return of_fabric ? max_severity_ : Severity::Warn;
    }
    /// Whether the port carries data on this node, or on at least half of the nodes.
    bool for_data(const AdapterPort& port) const {
        return port.carries_data() || 2 * of(port).num_with_data >= num_nodes_;
    }
    /// The ports that carry data on at least half of the nodes, as on one of them.
    std::vector<const AdapterPort*> common() const {
        std::vector<const AdapterPort*> ports;
        for (const auto& [name, peers] : ports_) {
            if (2 * peers.num_with_data >= num_nodes_) ports.push_back(peers.example);
        }
        return ports;
    }
    /// The usual rate of the ports that are active and have the same link layer.
    Medians usual_rates(const AdapterPort& port) const { return of(port).usual_rates.at(port.link_layer); }

  private:
    struct Ports {
        int count = 0, num_active = 0;
        size_t num_with_data = 0;
        const AdapterPort* example = nullptr;
        std::map<std::string, std::vector<double>> rates;  // by link layer
        std::map<std::string, Medians> usual_rates;
    };
    const Ports& of(const AdapterPort& port) const { return ports_.at({port.adapter, port.port}); }

    size_t num_nodes_;
    Severity max_severity_;
    std::map<std::pair<std::string, int>, Ports> ports_;
};

std::vector<const AdapterPort*> chosen_and_active(const NodeFacts& node, const ChosenPorts& choice,
                                                  bool (ChosenPorts::*chooses)(const AdapterPort&)
                                                      const = &ChosenPorts::chooses) {
    std::vector<const AdapterPort*> ports;
    for (const AdapterPort& port : node.adapter_ports) {
        if (port.active() && (choice.*chooses)(port)) ports.push_back(&port);
    }
    return ports;
}

bool of_several_kinds(const std::vector<const AdapterPort*>& ports) {
    return std::ranges::any_of(ports, [&](const AdapterPort* port) {
        return port->link_layer != ports[0]->link_layer || port->gigabits != ports[0]->gigabits;
    });
}

/// The setting that chooses the fastest of `ports`, InfiniBand before Ethernet. "=" requires whole names:
/// without it "mlx5_1" also matches mlx5_10.
std::string recommended_setting(const std::vector<const AdapterPort*>& ports) {
    const auto order = [](const AdapterPort* port) { return std::pair(port->infiniband(), port->gigabits); };
    const auto best = order(*std::ranges::max_element(ports, {}, order));
    std::string names;
    for (const AdapterPort* port : ports) {
        if (order(port) == best) names += (names.empty() ? "" : ",") + full_name(*port);
    }
    return fmt::format("set {}=={}", kChoice, names);
}

}  // namespace

std::vector<Finding> check_named_adapters(const Cluster& cluster) {
    NodeFindings found(kChoice);
    const RanksByNode ranks(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const NameList choice = choice_on(node, ranks);
        for (const NameList::Entry& entry : choice.entries()) {
            const bool there = std::ranges::any_of(node.adapter_ports, [&](const AdapterPort& port) {
                return choice.matches(entry, port.adapter, port.port);
            });
            if (there || choice.excludes()) continue;
            found.add(node.name, {fail_between_nodes(cluster),
                                  fmt::format("{} names {}, which the node lacks", kChoice, entry.name),
                                  "name adapters that `ls /sys/class/infiniband` shows on every node"});
        }
    }
    return found.findings(cluster);
}

/// A port that is down on more than half of the nodes is not part of the fabric. The check ignores such a
/// port unless a variable names it.
std::vector<Finding> check_adapter_links(const Cluster& cluster) {
    NodeFindings found(kCheckNames.adapter_links, Blame::Always);
    const RanksByNode ranks(cluster);
    const PeerPorts peers(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const ChosenPorts choice(node, ranks);
        for (const AdapterPort& port : node.adapter_ports) {
            if (port.active() || !choice.chooses(port)) continue;
            if (!choice.names(port) && !peers.half_are_active(port)) continue;
            found.add(node.name, {peers.max_severity(port, choice),
                                  fmt::format("{} is {} / {} instead of ACTIVE / LinkUp", full_name(port),
                                              port.state, port.physical_state),
                                  "leave the node out; check cable, switch port and subnet manager"});
        }
    }
    return found.findings(cluster);
}

/// Compares the number of ports for data, also of those that are down, which check_adapter_links reports.
/// Their names alone prove nothing, because nodes may name adapters differently. Leaves out ports that
/// NCCL_IB_HCA names or does not choose: check_named_adapters reports the former.
std::vector<Finding> check_num_adapters(const Cluster& cluster) {
    const RanksByNode ranks(cluster);
    const PeerPorts peers(cluster);
    const std::vector<const AdapterPort*> common = peers.common();
    std::vector<double> counts;
    std::vector<std::string> missing;  // by node: the common ports that it lacks
    for (const NodeFacts& node : cluster.nodes) {
        const NameList choice = choice_on(node, ranks);
        const auto counts_here = [&](const AdapterPort& port) {
            return choice.chooses(port.adapter, port.port) && !has_name_of(choice, port);
        };
        counts.push_back(
            static_cast<double>(std::ranges::count_if(node.adapter_ports, [&](const AdapterPort& port) {
                return counts_here(port) && peers.for_data(port);
            })));
        std::string& names = missing.emplace_back();
        for (const AdapterPort* port : common) {
            if (!counts_here(*port) || std::ranges::find(node.adapter_ports, full_name(*port), full_name) !=
                                           node.adapter_ports.end())
                continue;
            names += (names.empty() ? "" : ", ") + full_name(*port);
        }
    }
    const Medians usual = both_medians(counts);
    NodeFindings found(kCheckNames.num_adapters, Blame::Always);
    for (size_t i = 0; i < counts.size(); ++i) {
        const Severity severity = severity_below(usual, counts[i]);
        if (severity == Severity::Pass || missing[i].empty()) continue;
        found.add(cluster.nodes[i].name,
                  {severity,
                   fmt::format("{} ports for data, but {} on other nodes; it lacks {}", counts[i],
                               usual.upper, missing[i]),
                   "leave the node out; check lspci and the kernel's log there, reseat the adapter"});
    }
    return found.findings(cluster);
}

std::vector<Finding> check_adapter_rates(const Cluster& cluster) {
    NodeFindings found(kCheckNames.adapter_rates, Blame::Always);
    const RanksByNode ranks(cluster);
    const PeerPorts peers(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const ChosenPorts choice(node, ranks);
        for (const AdapterPort* port : chosen_and_active(node, choice)) {
            const Medians usual = peers.usual_rates(*port);
            const Severity severity = severity_below(usual, port->gigabits);
            if (severity == Severity::Pass) continue;
            found.add(node.name, {std::min(severity, peers.max_severity(*port, choice)),
                                  fmt::format("{} runs at {} Gb/s, but at {} on other nodes",
                                              full_name(*port), port->gigabits, usual.upper),
                                  "leave the node out; reseat or replace the cable"});
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_adapter_choice(const Cluster& cluster) {
    NodeFindings found(kChoice);
    if (cluster.nodes.size() < 2) return {};
    const RanksByNode ranks(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const Variable* variable = ranks.variable(kChoice, node);
        const auto ports = chosen_and_active(node, ChosenPorts(node, ranks), &ChosenPorts::for_nccl);
        const bool infiniband = std::ranges::any_of(ports, &AdapterPort::infiniband);
        if (variable && infiniband && !std::ranges::all_of(ports, &AdapterPort::infiniband)) {
            found.add(node.name,
                      {Severity::Warn,
                       fmt::format("{} includes Ethernet adapters beside InfiniBand adapters; they usually "
                                   "belong to the storage network",
                                   describe(*variable)),
                       recommended_setting(ports)});
        } else if (!variable && of_several_kinds(ports)) {
            found.add(node.name,
                      {Severity::Warn,
                       fmt::format("{} is not set, and the active adapters differ in kind or rate, so data "
                                   "may take the storage network",
                                   kChoice),
                       recommended_setting(ports)});
        }
    }
    return found.findings(cluster);
}

/// Compares the adapters with what they were before the measurements. A link that goes down ends a job. Other
/// errors cost time. The texts give a counter's growth as a power of ten, so that nodes with similar growth
/// share a finding.
std::vector<Finding> check_adapters_after(const Cluster& cluster) {
    constexpr const char* kLinkDown = "link_downed";
    NodeFindings lost(kCheckNames.adapter_links_under_stress, Blame::Always);
    NodeFindings errors(kCheckNames.adapter_errors, Blame::Always);
    const RanksByNode ranks(cluster);
    const PeerPorts peers(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        if (!node.adapter_ports_after) continue;
        const ChosenPorts choice(node, ranks);
        for (const AdapterPort* port : chosen_and_active(node, choice)) {
            const Severity max_severity = peers.max_severity(*port, choice);
            const auto after = std::ranges::find(*node.adapter_ports_after, full_name(*port), full_name);
            const bool gone = after == node.adapter_ports_after->end();
            if (gone || !after->active()) {
                lost.add(node.name,
                         {max_severity,
                          fmt::format("{} was ACTIVE before the load, and {} after it", full_name(*port),
                                      gone ? "is gone"
                                           : fmt::format("is {} / {}", after->state, after->physical_state)),
                          "leave the node out; see the kernel's log there, check cable and switch port"});
                continue;
            }
            for (const auto& [name, count] : after->counters) {
                const auto before = port->counters.find(name);
                if (before == port->counters.end() || count <= before->second) continue;
                int64_t growth = 1;
                while (growth <= (count - before->second) / 10) growth *= 10;
                errors.add(node.name, {name == kLinkDown ? max_severity : Severity::Warn,
                                       fmt::format("{} of {} has grown by at least {} during the pre-flight",
                                                   name, full_name(*port), growth),
                                       "reseat or replace the cable; check the switch port, and congestion"});
            }
        }
    }
    std::vector<Finding> findings = lost.findings(cluster);
    append(errors.findings(cluster), findings);
    return findings;
}

}  // namespace argosy::preflight
