// Wrong results: of matrix products under stress, of collectives, and of exchanges of pairs of nodes; and the
// nodes that compute wrongly or corrupt data.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "preflight/diagnose.h"

namespace argosy::preflight {
namespace {

/// The elements that were wrong in all exchanges of each pair of nodes.
using WrongByPair = std::map<std::pair<int, int>, int64_t>;

/// The nodes that corrupt data. A partner is healthy if its data was right with some node. A node whose data
/// was wrong with two healthy partners corrupts data, even if it was right with a third, because a fault may
/// come and go. If the node's data was right with no partner, one healthy partner is enough, or several
/// partners of any kind, unless the deadline cut the pairs short.
std::set<int> corrupting_nodes(const WrongByPair& wrong_by_pair, bool cut_short) {
    std::set<int> healthy;           // nodes whose data was right with some partner
    std::map<int, int> num_wrong;    // by node: partners with which data was wrong
    std::map<int, int> num_healthy;  // by node: the healthy ones of these partners
    for (const auto& [pair, wrong] : wrong_by_pair) {
        if (wrong == 0) healthy.insert({pair.first, pair.second});
    }
    for (const auto& [pair, wrong] : wrong_by_pair) {
        if (wrong == 0) continue;
        for (const auto& [node, partner] : {pair, std::pair(pair.second, pair.first)}) {
            ++num_wrong[node];
            if (healthy.contains(partner)) ++num_healthy[node];
        }
    }
    std::set<int> corrupting;
    for (const auto& [node, number] : num_wrong) {
        const int healthy_partners = num_healthy[node];
        const bool never_right = !healthy.contains(node);
        if (healthy_partners > 1 || (never_right && (healthy_partners > 0 || (number > 1 && !cut_short))))
            corrupting.insert(node);
    }
    return corrupting;
}

std::vector<Finding> find_wrong_pairs(const Speeds& speeds, const Cluster& cluster) {
    WrongByPair wrong_by_pair;
    for (const PairSpeed& pair : speeds.pairs) wrong_by_pair[{pair.first, pair.second}] += pair.num_wrong;
    const std::set<int> corrupting = corrupting_nodes(wrong_by_pair, speeds.pairs_cut_short);
    std::vector<Finding> findings;
    for (const auto& [pair, wrong] : wrong_by_pair) {
        if (wrong == 0) continue;
        const std::vector<std::string> names = {cluster.nodes[pair.first].name,
                                                cluster.nodes[pair.second].name};
        std::vector<std::string> bad;
        for (const int node : {pair.first, pair.second}) {
            if (corrupting.contains(node)) bad.push_back(cluster.nodes[node].name);
        }
        findings.push_back(
            {Severity::Fail, kCheckNames.data_between_nodes, describe_nodes(names, cluster),
             fmt::format("{} elements that they exchanged are wrong", wrong),
             "an adapter, cable or switch between them corrupts data: exchange with other nodes "
             "(nccl-bench sendrecv) to find the one at fault, and leave it out",
             bad});
    }
    return findings;
}

/// The nodes with a group of their own whose result has wrong elements: all of its data comes from the node.
std::vector<std::string> wrong_within(const OperationSpeed& speed, const Cluster& cluster) {
    std::vector<std::string> bad;
    for (const std::vector<int>& group : speed.operation.groups) {
        const bool wrong = std::ranges::any_of(
            group, [&](int rank) { return rank < std::ssize(speed.num_wrong) && speed.num_wrong[rank] > 0; });
        const std::vector<std::string> nodes = nodes_of(group, cluster);
        if (wrong && nodes.size() == 1 && std::ranges::find(bad, nodes[0]) == bad.end())
            bad.push_back(nodes[0]);
    }
    return bad;
}

constexpr const char* kReplace =
    "leave the node out; test the device with its maker's diagnosis (dcgmi diag)";

Finding wrong_products(const RankFacts& rank, const std::string& difference, const Cluster& cluster) {
    return {Severity::Fail,
            kCheckNames.product_results,
            describe_ranks({rank.rank}, cluster),
            fmt::format("{} computes wrongly (silent corruption): {}", rank.load->name(), difference),
            kReplace,
            {rank.node}};
}

/// Compares the results of ranks with devices of one kind. If no hash has a majority, it is unknown which
/// devices are wrong.
void compare_hashes(const std::vector<const RankFacts*>& ranks, const Cluster& cluster,
                    std::vector<Finding>& findings) {
    std::map<std::string, std::vector<int>> ranks_by_hash;
    for (const RankFacts* rank : ranks) ranks_by_hash[rank->load->hash].push_back(rank->rank);
    if (ranks_by_hash.size() < 2) return;
    const auto& [usual, agreeing] =
        *std::ranges::max_element(ranks_by_hash, {}, [](const auto& entry) { return entry.second.size(); });
    const std::string kind = ranks[0]->load->kind();
    if (2 * agreeing.size() <= ranks.size()) {
        std::vector<int> numbers;
        for (const RankFacts* rank : ranks) numbers.push_back(rank->rank);
        findings.push_back({Severity::Fail, kCheckNames.product_results, describe_ranks(numbers, cluster),
                            fmt::format("devices of one kind ({}) have {} different results of one product, "
                                        "and no result has a majority: some compute wrongly",
                                        kind, ranks_by_hash.size()),
                            "run the pre-flight with more of these nodes, so that a majority shows which "
                            "devices are wrong"});
        return;
    }
    for (const RankFacts* rank : ranks) {
        // A device that contradicts itself has a finding of check_products() already.
        if (rank->load->hash == usual || rank->load->num_different > 0) continue;
        findings.push_back(wrong_products(*rank,
                                          fmt::format("{} of {} devices of its kind ({}) have another result",
                                                      agreeing.size(), ranks.size(), kind),
                                          cluster));
    }
}

}  // namespace

std::vector<Finding> check_products(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const RankFacts& rank : cluster.ranks) {
        if (!rank.load || rank.load->num_different == 0) continue;
        findings.push_back(wrong_products(rank,
                                          fmt::format("{} of {} results of one product differ from the first",
                                                      rank.load->num_different, rank.load->num_products),
                                          cluster));
    }
    for (const auto& [kind, ranks] : ranks_by_kind(cluster)) compare_hashes(ranks, cluster, findings);
    return findings;
}

std::vector<Finding> find_wrong_results(const Speeds& speeds, const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const OperationSpeed& speed : speeds.operations) {
        std::vector<int> ranks;
        int64_t count = 0;
        for (size_t rank = 0; rank < speed.num_wrong.size(); ++rank) {
            count += speed.num_wrong[rank];
            if (speed.num_wrong[rank] > 0) ranks.push_back(static_cast<int>(rank));
        }
        if (count == 0) continue;
        findings.push_back(
            {Severity::Fail, std::string(kResultOf) + speed.operation.name(), describe_ranks(ranks, cluster),
             fmt::format("{} elements of the result are wrong", count),
             "a device, link or library of these ranks or of their groups corrupts data: run nccl-bench on "
             "half of the nodes, then on half of those, to find it",
             wrong_within(speed, cluster)});
    }
    append(find_wrong_pairs(speeds, cluster), findings);
    return findings;
}

}  // namespace argosy::preflight
