// Checks the network interfaces that variables choose: whether they exist, are up, and lead to other nodes.

#include <fmt/format.h>

#include <algorithm>

#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

struct Choice {
    const char* variable;
    NameList::Syntax syntax;
};
constexpr Choice kChoices[] = {
    {"NCCL_SOCKET_IFNAME", NameList::Syntax::Nccl},
    {"OMPI_MCA_btl_tcp_if_include", NameList::Syntax::WholeNames},
    {"OMPI_MCA_oob_tcp_if_include", NameList::Syntax::WholeNames},
};

bool is_up(const Interface& interface) { return interface.state == "up" || interface.state == "unknown"; }

std::string names_of(const std::vector<Interface>& interfaces) {
    std::string names;
    for (const Interface& interface : interfaces) names += (names.empty() ? "" : ", ") + interface.name;
    return names;
}

/// The interfaces that a variable chooses on one node.
class Chosen {
  public:
    Chosen(const Variable& variable, const NameList& choice, const NodeFacts& node)
        : variable_(variable), choice_(choice) {
        for (const Interface& interface : node.interfaces) {
            if (!choice.chooses(interface.name)) continue;
            (is_up(interface) ? up_ : down_).push_back(interface);
        }
    }

    bool has_none() const { return up_.empty() && down_.empty(); }
    bool all_down() const { return up_.empty() && !down_.empty(); }

    /// Lists the entries that match no interface that is up. Empty if there is none.
    std::string unusable_entries() const {
        std::string text;
        if (choice_.excludes()) return text;
        for (const NameList::Entry& entry : choice_.entries()) {
            const auto fits = [&](const Interface& interface) {
                return choice_.matches(entry, interface.name);
            };
            if (std::ranges::any_of(up_, fits)) continue;
            const bool down = std::ranges::any_of(down_, fits);
            text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", entry.name, down ? "down" : "absent");
        }
        return text;
    }

    bool only_inside() const { return std::ranges::none_of(up_, &Interface::leaves_the_machine); }
    std::string down() const { return names_of(down_); }
    std::string up() const { return names_of(up_); }
    std::string setting() const { return describe(variable_); }

  private:
    const Variable& variable_;
    const NameList& choice_;
    std::vector<Interface> up_, down_;
};

/// Reports only the most serious problem of each node.
void check_choice(const Choice& choice, const Cluster& cluster, std::vector<Finding>& findings) {
    NodeFindings settings(choice.variable), links(choice.variable, Blame::Always);
    const RanksByNode ranks(cluster);
    const bool several_machines = num_machines(cluster) > 1;
    for (const NodeFacts& node : cluster.nodes) {
        const Variable* variable = ranks.variable(choice.variable, node);
        if (!variable) continue;
        const NameList list(variable->value, choice.syntax);
        if (list.entries().empty()) continue;
        const Chosen chosen(*variable, list, node);
        if (chosen.has_none()) {
            settings.add(node.name, {Severity::Fail, chosen.setting() + " matches no interface of the node",
                                     "name an interface that `ip link` shows on every node"});
        } else if (chosen.all_down()) {
            links.add(node.name,
                      {Severity::Fail, fmt::format("{}: {} is down", chosen.setting(), chosen.down()),
                       "leave the node out, or bring the interface up"});
        } else if (chosen.only_inside() && several_machines) {
            settings.add(node.name, {Severity::Warn,
                                     fmt::format("{} chooses {}, which does not leave the machine",
                                                 chosen.setting(), chosen.up()),
                                     "name the interface that leads to the other nodes"});
        } else if (const std::string unusable = chosen.unusable_entries(); !unusable.empty()) {
            settings.add(node.name, {Severity::Warn, fmt::format("{}: {}", chosen.setting(), unusable),
                                     "name interfaces that are up on every node"});
        }
    }
    append(settings.findings(cluster), findings);
    append(links.findings(cluster), findings);
}

}  // namespace

std::vector<Finding> check_interfaces(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const Choice& choice : kChoices) check_choice(choice, cluster, findings);
    return findings;
}

}  // namespace argosy::preflight
