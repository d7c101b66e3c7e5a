// Checks the InfiniBand and RoCE adapters that NCCL will use: whether they exist, are up, are as fast as
// the same adapters on other nodes, and all belong to one fabric.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/median.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

constexpr const char* kChoice = "NCCL_IB_HCA";

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
    /// because it carries data on most nodes, or NCCL_IB_HCA names it.
    Severity max_severity(const AdapterPort& port, const NameList& choice) const {
        const bool of_fabric = 2 * of(port).num_with_data > num_nodes_ || has_name_of(choice, port);
        return of_fabric ? max_severity_ : Severity::Warn;
    }
    /// The usual rate of the ports that are active and have the same link layer.
    Medians usual_rates(const AdapterPort& port) const { return of(port).usual_rates.at(port.link_layer); }

  private:
    struct Ports {
        int count = 0, num_active = 0;
        size_t num_with_data = 0;
        std::map<std::string, std::vector<double>> rates;  // by link layer
        std::map<std::string, Medians> usual_rates;
    };
    const Ports& of(const AdapterPort& port) const { return ports_.at({port.adapter, port.port}); }

    size_t num_nodes_;
    Severity max_severity_;
    std::map<std::pair<std::string, int>, Ports> ports_;
};

std::vector<const AdapterPort*> chosen_and_active(const NodeFacts& node, const NameList& choice) {
    std::vector<const AdapterPort*> ports;
    for (const AdapterPort& port : node.adapter_ports) {
        if (port.active() && choice.chooses(port.adapter, port.port)) ports.push_back(&port);
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
/// port unless NCCL_IB_HCA names it.
std::vector<Finding> check_adapter_links(const Cluster& cluster) {
    NodeFindings found(kCheckNames.adapter_links, Blame::Always);
    const RanksByNode ranks(cluster);
    const PeerPorts peers(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const NameList choice = choice_on(node, ranks);
        for (const AdapterPort& port : node.adapter_ports) {
            if (port.active() || !choice.chooses(port.adapter, port.port)) continue;
            if (!has_name_of(choice, port) && !peers.half_are_active(port)) continue;
            found.add(node.name, {peers.max_severity(port, choice),
                                  fmt::format("{} is {} / {} instead of ACTIVE / LinkUp", full_name(port),
                                              port.state, port.physical_state),
                                  "leave the node out; check cable, switch port and subnet manager"});
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_adapter_rates(const Cluster& cluster) {
    NodeFindings found(kCheckNames.adapter_rates, Blame::Always);
    const RanksByNode ranks(cluster);
    const PeerPorts peers(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const NameList choice = choice_on(node, ranks);
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
        const auto ports = chosen_and_active(node, choice_on(node, ranks));
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

}  // namespace argosy::preflight
