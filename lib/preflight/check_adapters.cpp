// Checks the InfiniBand and RoCE adapters that the ranks will use: whether they exist, are up, are as fast as
// the same adapters on other nodes, and all belong to one fabric.
#include <fmt/format.h>

#include <algorithm>

#include "preflight/checks.h"
#include "preflight/name_list.h"
#include "preflight/places.h"

namespace argosy::preflight {
namespace {

constexpr const char* kChoice = "NCCL_IB_HCA";

std::string spelled(const AdapterPort& port) {
    return port.port == 1 ? port.adapter : fmt::format("{}:{}", port.adapter, port.port);
}

NameList choice_on(const NodeFacts& node, const Cluster& cluster) {
    const Variable* variable = variable_on(node.name, kChoice, cluster);
    return {variable ? variable->value : "", NameList::Syntax::Nccl};
}

/// FAIL in jobs of several nodes, else WARN, because the fabric carries no data within one node.
Severity fail_between_nodes(const Cluster& cluster) {
    return cluster.nodes.size() > 1 ? Severity::Fail : Severity::Warn;
}

/// The ports of the same name on all nodes, this one included.
std::vector<const AdapterPort*> likes_of(const AdapterPort& port, const Cluster& cluster) {
    std::vector<const AdapterPort*> likes;
    for (const NodeFacts& node : cluster.nodes) {
        for (const AdapterPort& other : node.adapter_ports) {
            if (other.adapter == port.adapter && other.port == port.port) likes.push_back(&other);
        }
    }
    return likes;
}

bool mostly_up(const std::vector<const AdapterPort*>& likes) {
    return 2 * std::ranges::count_if(likes, &AdapterPort::active) >= std::ssize(likes);
}

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

/// The setting that chooses the fastest of `ports`, InfiniBand before Ethernet. The setting requires whole
/// names ("=") only if a chosen name begins an unwanted one: "mlx5_1" also matches mlx5_10.
std::string line_to_set(const std::vector<const AdapterPort*>& ports) {
    const auto order = [](const AdapterPort* port) { return std::pair(port->infiniband(), port->gigabits); };
    const auto best = order(*std::ranges::max_element(ports, {}, order));
    std::string names;
    for (const AdapterPort* port : ports) {
        if (order(port) == best) names += (names.empty() ? "" : ",") + spelled(*port);
    }
    const NameList list(names, NameList::Syntax::Nccl);
    const bool ambiguous = std::ranges::any_of(ports, [&](const AdapterPort* port) {
        return order(port) != best && list.chooses(port->adapter, port->port);
    });
    return fmt::format("set {}={}{}", kChoice, ambiguous ? "=" : "", names);
}

}  // namespace

std::vector<Finding> check_named_adapters(const Cluster& cluster) {
    NodeFindings found(kChoice);
    for (const NodeFacts& node : cluster.nodes) {
        const NameList choice = choice_on(node, cluster);
        for (const NameList::Entry& entry : choice.entries()) {
            const bool there = std::ranges::any_of(node.adapter_ports, [&](const AdapterPort& port) {
                return choice.matches(entry, port.adapter, port.port);
            });
            if (there || choice.excludes()) continue;
            found.add(node.name, {fail_between_nodes(cluster),
                                  fmt::format("{} names {}, which is not there", kChoice, entry.name),
                                  "name adapters that `ls /sys/class/infiniband` shows on every node"});
        }
    }
    return found.findings(cluster);
}

/// Ignores a port that is down on more than half of the nodes, since it is not part of the fabric, unless
/// NCCL_IB_HCA has its adapter's full name.
std::vector<Finding> check_adapter_links(const Cluster& cluster) {
    NodeFindings found("adapters' links", Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        const NameList choice = choice_on(node, cluster);
        for (const AdapterPort& port : node.adapter_ports) {
            if (port.active() || !choice.chooses(port.adapter, port.port)) continue;
            const bool named = !choice.excludes() &&
                               std::ranges::find(choice.entries(), port.adapter, &NameList::Entry::name) !=
                                   choice.entries().end();
            if (!named && !mostly_up(likes_of(port, cluster))) continue;
            found.add(node.name, {fail_between_nodes(cluster),
                                  fmt::format("{} is {} / {} in place of ACTIVE / LinkUp", spelled(port),
                                              port.state, port.physical_state),
                                  "leave the node out; look at cable, switch port and subnet manager"});
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_adapter_rates(const Cluster& cluster) {
    NodeFindings found("adapters' rates", Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        for (const AdapterPort* port : chosen_and_active(node, choice_on(node, cluster))) {
            std::vector<double> rates;
            for (const AdapterPort* like : likes_of(*port, cluster)) {
                if (like->active() && like->link_layer == port->link_layer) rates.push_back(like->gigabits);
            }
            const double expected = upper_median(rates);
            if (port->gigabits >= expected) continue;
            found.add(node.name, {fail_between_nodes(cluster),
                                  fmt::format("{} came up at {} Gb/s, on other nodes at {}", spelled(*port),
                                              port->gigabits, expected),
                                  "leave the node out; reseat or replace the cable"});
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_adapter_choice(const Cluster& cluster) {
    NodeFindings found(kChoice);
    if (cluster.nodes.size() < 2) return {};
    for (const NodeFacts& node : cluster.nodes) {
        const Variable* variable = variable_on(node.name, kChoice, cluster);
        const auto ports = chosen_and_active(node, choice_on(node, cluster));
        const bool infiniband = std::ranges::any_of(ports, &AdapterPort::infiniband);
        if (variable && infiniband && !std::ranges::all_of(ports, &AdapterPort::infiniband)) {
            found.add(node.name,
                      {Severity::Warn,
                       fmt::format("{} includes Ethernet adapters beside InfiniBand ones: the storage's, "
                                   "as a rule",
                                   describe(*variable)),
                       line_to_set(ports)});
        } else if (!variable && of_several_kinds(ports)) {
            found.add(node.name,
                      {Severity::Warn,
                       fmt::format("{} is not set, and the active adapters differ in kind or rate: data "
                                   "may go over the storage's",
                                   kChoice),
                       line_to_set(ports)});
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_adapter_pcie(const Cluster& cluster) {
    NodeFindings found("adapters' PCIe links");
    for (const NodeFacts& node : cluster.nodes) {
        for (const AdapterPort* port : chosen_and_active(node, choice_on(node, cluster))) {
            const bool narrow = port->pcie_lanes && port->pcie_lanes < port->most_pcie_lanes;
            const bool slow = port->pcie_transfers && port->pcie_transfers < port->most_pcie_transfers;
            if (!narrow && !slow) continue;
            found.add(node.name,
                      {Severity::Warn,
                       fmt::format("{} runs {} lanes of {} at {} GT/s of {}", port->adapter,
                                   port->pcie_lanes.value_or(0), port->most_pcie_lanes.value_or(0),
                                   port->pcie_transfers.value_or(0), port->most_pcie_transfers.value_or(0)),
                       "reseat it, or move it to a slot as wide and fast as it is"});
        }
    }
    return found.findings(cluster);
}

}  // namespace argosy::preflight
