#include "preflight/facts.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"

namespace nlohmann {

/// An empty optional is null in JSON.
template <class Value>
struct adl_serializer<std::optional<Value>> {
    static void to_json(json& to, const std::optional<Value>& from) {
        to = from ? json(*from) : json(nullptr);
    }
    static void from_json(const json& from, std::optional<Value>& to) {
        if (!from.is_null()) to = from.get<Value>();
    }
};

}  // namespace nlohmann

namespace argosy::preflight {

// In JSON, a member has its own name as key. Programs read the keys in reports, so members keep their names.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Variable, name, value, file)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StressResult, device, library, bus_id, seconds, flops_per_second, hash,
                                   num_products, num_different)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(VisibleGpus, count, own, host, problem, requested)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Space, total_bytes, free_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Interface, name, state, megabits, leaves_the_machine)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AdapterPort, adapter, port, state, physical_state, link_layer, gigabits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DcgmAnswer::Fault, what, severe)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DcgmAnswer, command, faults, not_judged)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderFacts, path, problem, bytes_per_second, space)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, rank, node, variables, executable_hash, argosy_version,
                                   mpi_library, cuda_version, nccl_version, memlock_bytes, cpus, num_cpus,
                                   load, visible_gpus)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, bus_id, name, driver, throttle_reasons, uncorrected_errors,
                                   pcie_lanes, most_pcie_lanes, pcie_generation, most_pcie_generation,
                                   used_mebibytes, total_mebibytes, mig_mode, uuid)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, name, boot_id, shared_memory, num_cpus, interfaces,
                                   adapter_ports, gpus, gpus_problem, has_nvidia_smi, gpus_hang,
                                   gpus_hang_under_load, gpus_out_of_time, dcgm, dump_folder, gpus_under_load,
                                   gpus_after)

namespace {

template <class Facts>
std::string packed(const Facts& facts) {
    return json_text(nlohmann::json(facts));
}

template <class Facts>
Facts unpacked(const std::string& text) {
    try {
        return nlohmann::json(parse_json(text, "their text")).get<Facts>();
    } catch (const std::exception& error) {
        throw RunError("the facts that a rank sent cannot be read: {}", error.what());
    }
}

}  // namespace

const Variable* RankFacts::variable(const std::string& name) const {
    const auto found = std::ranges::find(variables, name, &Variable::name);
    return found == variables.end() ? nullptr : &*found;
}

std::string pci_address(const std::string& bus_id) {
    constexpr size_t kLetters = 12;
    std::string address = bus_id.substr(bus_id.size() - std::min(bus_id.size(), kLetters));
    std::ranges::transform(address, address.begin(),
                           [](unsigned char letter) { return std::tolower(letter); });
    return address;
}

void NodeFacts::add_gpus_problem(const std::string& when, const std::string& problem) {
    if (problem.empty() || gpus_problem.find(problem) != gpus_problem.npos) return;
    gpus_problem += (gpus_problem.empty() ? "" : "; ") + when + problem;
}

std::vector<std::string> nodes_of(const std::vector<int>& ranks, const Cluster& cluster) {
    std::vector<std::string> nodes;
    std::set<std::string> seen;
    for (const int rank : ranks) {
        const std::string& node = cluster.ranks[rank].node;
        if (seen.insert(node).second) nodes.push_back(node);
    }
    return nodes;
}

std::map<std::string, std::vector<const RankFacts*>> ranks_by_kind(const Cluster& cluster) {
    std::map<std::string, std::vector<const RankFacts*>> kinds;
    for (const RankFacts& rank : cluster.ranks) {
        if (rank.load) kinds[rank.load->kind()].push_back(&rank);
    }
    return kinds;
}

std::vector<Node> group_by_node(const std::vector<std::string>& names) {
    std::vector<Node> nodes;
    std::unordered_map<std::string, size_t> numbers;  // of the nodes
    for (size_t rank = 0; rank < names.size(); ++rank) {
        const auto [number, is_new] = numbers.try_emplace(names[rank], nodes.size());
        if (is_new) nodes.push_back({names[rank], {}});
        nodes[number->second].ranks.push_back(static_cast<int>(rank));
    }
    return nodes;
}

RanksByNode::RanksByNode(const Cluster& cluster) {
    for (const RankFacts& rank : cluster.ranks) ranks_[rank.node].push_back(&rank);
}

const std::vector<const RankFacts*>& RanksByNode::on(const NodeFacts& node) const {
    static const std::vector<const RankFacts*> none;
    const auto found = ranks_.find(node.name);
    return found == ranks_.end() ? none : found->second;
}

const Variable* RanksByNode::variable(const std::string& name, const NodeFacts& node) const {
    const auto& ranks = on(node);
    return ranks.empty() ? nullptr : ranks.front()->variable(name);
}

UsedGpus::UsedGpus(const NodeFacts& node, const RanksByNode& ranks) {
    for (const RankFacts* rank : ranks.on(node)) {
        if (rank->load && !rank->load->bus_id.empty()) addresses_.insert(pci_address(rank->load->bus_id));
        if (rank->visible_gpus && !rank->visible_gpus->own.empty())
            addresses_.insert(pci_address(rank->visible_gpus->own));
    }
}

bool UsedGpus::has(const Gpu& gpu) const {
    return addresses_.empty() || addresses_.contains(pci_address(gpu.bus_id));
}

size_t num_machines(const Cluster& cluster) {
    std::set<std::string> boot_ids;
    for (const NodeFacts& node : cluster.nodes) boot_ids.insert(node.boot_id);
    return boot_ids.size();
}

std::string pack(const RankFacts& facts) { return packed(facts); }
std::string pack(const NodeFacts& facts) { return packed(facts); }
RankFacts unpack_rank(const std::string& text) { return unpacked<RankFacts>(text); }
NodeFacts unpack_node(const std::string& text) { return unpacked<NodeFacts>(text); }

}  // namespace argosy::preflight
