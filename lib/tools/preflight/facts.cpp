#include "preflight/facts.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
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

// In JSON, a member of these types has its own name as key.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Variable, name, value, file)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StressResult, device, library, bus_id, seconds, flops_per_second, hash,
                                   num_products, num_different)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(VisibleGpus, count, own, host, problem, requested)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Space, total_bytes, free_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Interface, name, state, megabits, leaves_the_machine)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DcgmAnswer::Fault, what, severe)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DcgmAnswer, command, faults, not_judged)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FolderFacts, path, problem, bytes_per_second, space)

/// A member of the types below, and its key in JSON. Programs read the keys in reports, so a key stays if its
/// member gets another name.
template <class Facts, class Value>
struct Key {
    const char* key;
    Value Facts::*member;
};
template <class Facts, class Value>
Key(const char*, Value Facts::*) -> Key<Facts, Value>;

constexpr auto keys_of(const RankFacts*) {
    return std::tuple(
        Key{"rank", &RankFacts::rank}, Key{"node", &RankFacts::node}, Key{"variables", &RankFacts::variables},
        Key{"executable_hash", &RankFacts::executable_hash},
        Key{"argosy_version", &RankFacts::argosy_version}, Key{"mpi_library", &RankFacts::mpi_library},
        Key{"cuda_version", &RankFacts::cuda_version}, Key{"nccl_version", &RankFacts::nccl_version},
        Key{"memlock_bytes", &RankFacts::memlock_bytes}, Key{"cpus", &RankFacts::cpus},
        Key{"num_cpus", &RankFacts::num_cpus}, Key{"load", &RankFacts::stress},
        Key{"visible_gpus", &RankFacts::visible_gpus});
}
constexpr auto keys_of(const AdapterPort*) {
    return std::tuple(Key{"adapter", &AdapterPort::adapter}, Key{"port", &AdapterPort::port},
                      Key{"state", &AdapterPort::state}, Key{"physical_state", &AdapterPort::physical_state},
                      Key{"link_layer", &AdapterPort::link_layer}, Key{"gigabits", &AdapterPort::gigabits},
                      Key{"counters", &AdapterPort::counters});
}
constexpr auto keys_of(const Gpu*) {
    return std::tuple(
        Key{"bus_id", &Gpu::bus_id}, Key{"name", &Gpu::name}, Key{"driver", &Gpu::driver},
        Key{"throttle_reasons", &Gpu::throttle_reasons}, Key{"uncorrected_errors", &Gpu::uncorrected_errors},
        Key{"pcie_lanes", &Gpu::pcie_lanes}, Key{"most_pcie_lanes", &Gpu::max_pcie_lanes},
        Key{"pcie_generation", &Gpu::pcie_generation}, Key{"most_pcie_generation", &Gpu::max_pcie_generation},
        Key{"used_mebibytes", &Gpu::used_mebibytes}, Key{"total_mebibytes", &Gpu::total_mebibytes},
        Key{"mig_mode", &Gpu::mig_mode}, Key{"uuid", &Gpu::uuid}, Key{"near_cpus", &Gpu::near_cpus});
}
constexpr auto keys_of(const NodeFacts*) {
    return std::tuple(
        Key{"name", &NodeFacts::name}, Key{"boot_id", &NodeFacts::boot_id},
        Key{"shared_memory", &NodeFacts::shared_memory}, Key{"num_cpus", &NodeFacts::num_cpus},
        Key{"interfaces", &NodeFacts::interfaces}, Key{"adapter_ports", &NodeFacts::adapter_ports},
        Key{"gpus", &NodeFacts::gpus}, Key{"gpus_problem", &NodeFacts::gpus_problem},
        Key{"has_nvidia_smi", &NodeFacts::has_nvidia_smi}, Key{"gpus_hang", &NodeFacts::gpus_hang},
        Key{"gpus_hang_under_load", &NodeFacts::gpus_hang_under_stress},
        Key{"gpus_out_of_time", &NodeFacts::gpus_out_of_time}, Key{"dcgm", &NodeFacts::dcgm},
        Key{"dump_folder", &NodeFacts::dump_folder}, Key{"gpus_under_load", &NodeFacts::gpus_under_stress},
        Key{"gpus_after", &NodeFacts::gpus_after},
        Key{"adapter_ports_after", &NodeFacts::adapter_ports_after});
}

template <class Facts>
concept HasKeys = requires(const Facts* facts) {
    keys_of(facts);
};

template <HasKeys Facts>
void to_json(nlohmann::json& to, const Facts& from) {
    const auto write = [&](const auto&... one) { ((to[one.key] = from.*one.member), ...); };
    std::apply(write, keys_of(&from));
}

template <HasKeys Facts>
void from_json(const nlohmann::json& from, Facts& to) {
    const auto read = [&](const auto&... one) { (from.at(one.key).get_to(to.*one.member), ...); };
    std::apply(read, keys_of(&to));
}

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

const Gpu* NodeFacts::gpu_at(const std::string& bus_id) const {
    const auto found = std::ranges::find_if(
        gpus, [&](const Gpu& gpu) { return pci_address(gpu.bus_id) == pci_address(bus_id); });
    return found == gpus.end() ? nullptr : &*found;
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
        if (rank->stress && !rank->stress->bus_id.empty())
            addresses_.insert(pci_address(rank->stress->bus_id));
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

std::vector<int> InputReading::late_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < std::ssize(seconds); ++rank)
        if (std::isinf(seconds[rank])) ranks.push_back(rank);
    return ranks;
}

double InputReading::max_seconds_in_time() const {
    double max_seconds = 0;
    for (const double one : seconds)
        if (!std::isinf(one)) max_seconds = std::max(max_seconds, one);
    return max_seconds;
}

}  // namespace argosy::preflight
