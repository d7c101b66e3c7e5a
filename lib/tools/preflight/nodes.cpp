#include "preflight/nodes.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "preflight/compare_speeds.h"

namespace argosy::preflight {
namespace {

void pair_up(int first, int second, Round& round) { round[first] = second, round[second] = first; }

}  // namespace

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

std::vector<std::string> names_of(const std::vector<Node>& nodes) {
    std::vector<std::string> names;
    for (const Node& node : nodes) names.push_back(node.name);
    return names;
}

std::string listed(const std::vector<std::string>& names) {
    constexpr size_t kMaxListed = 8;
    return argosy::listed(names, kMaxListed);
}

/// The circle method for round-robin schedules: the nodes stand in a circle, opposite nodes are partners, and
/// from round to round all nodes but one move on by one position. If the number of nodes is odd, one position
/// is empty, and the node opposite is alone. At first, nodes 0, 2, 4, ... stand opposite nodes 1, 3, 5, ...
std::vector<Round> rounds_of_pairs(int num_nodes, int max_rounds) {
    if (num_nodes < 2) return {};
    const int places = num_nodes + num_nodes % 2, num_rounds = places - 1;
    const int wanted = std::min(max_rounds, num_rounds);
    std::vector<Round> rounds;
    for (int i = 0; i < wanted; ++i) {
        const int turn = i * num_rounds / wanted;
        const auto at = [&](int place) {
            const int first = place == 0 ? 0 : 1 + (place - 1 + turn) % num_rounds;
            return first < places / 2 ? 2 * first : 2 * (places - 1 - first) + 1;
        };
        Round partners(places);
        for (int place = 0; place < places / 2; ++place) {
            const int left = at(place), right = at(places - 1 - place);
            partners[left] = right;
            partners[right] = left;
        }
        if (num_nodes % 2 == 1) partners[partners[num_nodes]] = partners[num_nodes];
        partners.resize(num_nodes);
        rounds.push_back(std::move(partners));
    }
    return rounds;
}

double PairSpeed::rate() const { return std::accumulate(rails.begin(), rails.end(), 0.0); }

PairStates::PairStates(const std::vector<PairSpeed>& pairs, size_t num_before_hunt, int num_nodes)
    : good_(num_nodes), num_tries_(num_nodes), partners_(num_nodes) {
    std::map<std::pair<int, int>, Pair> merged;
    for (size_t i = 0; i < pairs.size(); ++i) {
        const PairSpeed& one = pairs[i];
        Pair& pair =
            merged.try_emplace({one.first, one.second}, Pair{one.first, one.second, one.rails}).first->second;
        for (size_t place = 0; place < one.rails.size(); ++place)
            pair.rails[place] = std::max(pair.rails[place], one.rails[place]);
        ++pair.num_measurements;
        pair.wrong |= one.num_wrong > 0;
        pair.num_in_hunt += i >= num_before_hunt;
    }
    size_t num_places = 0;
    for (auto& [nodes, pair] : merged) {
        num_places = std::max(num_places, pair.rails.size());
        pair.slow_rails.resize(pair.rails.size());
        partners_[pair.first].push_back(pair.second);
        partners_[pair.second].push_back(pair.first);
        pairs_.push_back(std::move(pair));
    }
    for (size_t place = 0; place < num_places; ++place) find_slow_rails(place);
    find_slow_pairs();
    find_good_nodes();
}

/// Compares the ranks at one place over all pairs: of eight rails, a slow one hardly shows in the sum.
void PairStates::find_slow_rails(size_t place) {
    std::vector<double> rates;
    for (const Pair& pair : pairs_) rates.push_back(place < pair.rails.size() ? pair.rails[place] : 0);
    for (const Outlier& one : slow_outliers(rates)) {
        Pair& pair = pairs_[one.index];
        pair.slow_rails[place] = 1;
        if (pair.slow && pair.slow->share < one.share) continue;
        pair.slow =
            SlowPath{pair.first, pair.second, static_cast<int>(place), one.share, pair.num_measurements};
    }
}

/// Compares the means of the ranks of the pairs: nodes may differ in their number of ranks. A pair of which
/// only some rails are slow keeps the slowest rail.
void PairStates::find_slow_pairs() {
    std::vector<double> rates;
    for (const Pair& pair : pairs_) rates.push_back(pair.mean_rail());
    for (const Outlier& one : slow_outliers(rates)) {
        Pair& pair = pairs_[one.index];
        const auto num_slow = std::ranges::count(pair.slow_rails, 1);
        if (num_slow > 0 && num_slow < std::ssize(pair.slow_rails)) continue;
        pair.slow = SlowPath{pair.first, pair.second, {}, one.share, pair.num_measurements};
        std::ranges::fill(pair.slow_rails, 1);
    }
}

/// Returns for each place three quarters of the upper quartile of the nodes' best rates. The median of the
/// pairs would be too low, because a bad node makes the pairs of all its partners slow. The median of the
/// nodes would be too low as well, because nodes that had only bad partners look bad.
std::vector<double> PairStates::min_fast_rates() const {
    constexpr double kMinShare = 0.75;      // below it a slow node gets FAIL (compare_speeds.h)
    std::vector<std::vector<double>> best;  // by place and node
    for (const Pair& pair : pairs_) {
        if (best.size() < pair.rails.size())
            best.resize(pair.rails.size(), std::vector<double>(good_.size()));
        for (size_t place = 0; place < pair.rails.size(); ++place) {
            for (const int node : {pair.first, pair.second})
                best[place][node] = std::max(best[place][node], pair.rails[place]);
        }
    }
    std::vector<double> rates;
    for (std::vector<double>& of_nodes : best) {
        std::erase_if(of_nodes, [](double rate) { return rate <= 0; });  // no rank there, or no partner
        std::ranges::sort(of_nodes);
        rates.push_back(of_nodes.empty() ? 0 : kMinShare * of_nodes[of_nodes.size() * 3 / 4]);
    }
    return rates;
}

void PairStates::find_good_nodes() {
    const std::vector<double> min_rates = min_fast_rates();
    std::vector<std::vector<char>> fast(good_.size());  // by node and place
    for (const Pair& pair : pairs_) {
        for (const int node : {pair.first, pair.second}) {
            if (fast[node].size() < pair.rails.size()) fast[node].resize(pair.rails.size());
            for (size_t place = 0; place < pair.rails.size(); ++place)
                fast[node][place] |=
                    !pair.slow_rails[place] && !pair.wrong && pair.rails[place] >= min_rates[place];
        }
    }
    for (size_t node = 0; node < good_.size(); ++node)
        good_[node] = !fast[node].empty() && std::ranges::count(fast[node], 0) == 0;
    for (const Pair& pair : pairs_) {
        if (good_[pair.second]) num_tries_[pair.first] += pair.num_in_hunt;
        if (good_[pair.first]) num_tries_[pair.second] += pair.num_in_hunt;
    }
}

std::vector<SlowPath> PairStates::slow_paths() const {
    std::vector<SlowPath> paths;
    for (const Pair& pair : pairs_) {
        if (pair.slow && good_[pair.first] && good_[pair.second]) paths.push_back(*pair.slow);
    }
    return paths;
}

/// The nearest good node that is free in `round`; if possible, one that was not a partner of `node` before.
std::optional<int> PairStates::partner_for(int node, const Round& round) const {
    const auto num_nodes = static_cast<int>(round.size());
    std::optional<int> partner;
    for (int distance = 1; distance < num_nodes; ++distance) {
        for (const int other : {node - distance, node + distance}) {
            if (other < 0 || other >= num_nodes || !good_[other] || round[other] != other) continue;
            if (std::ranges::find(partners_[node], other) == partners_[node].end()) return other;
            if (!partner) partner = other;
        }
    }
    return partner;
}

/// Gives good partners to some of the nodes that are not good yet, those with the fewest tries: to so many
/// that all tries fit into `num_rounds`, or to a share of the job's nodes if that is more. Spreads the choice
/// over the whole list, because neighbours share a switch. Returns whether there is such a pair.
bool PairStates::pair_suspects(int num_rounds, Round& round) const {
    constexpr int kNodesPerPair[] = {16, 64};  // by tries: fewer would load tapered links between switches
    constexpr int kMaxTries = std::size(kNodesPerPair);
    std::vector<int> waiting;
    int fewest = kMaxTries, num_wanted = 0;
    for (int node = 0; node < std::ssize(round); ++node) {
        if (good_[node] || partners_[node].empty() || num_tries_[node] >= kMaxTries) continue;
        num_wanted += kMaxTries - num_tries_[node];
        if (num_tries_[node] < fewest) waiting.clear();
        fewest = std::min(fewest, num_tries_[node]);
        if (num_tries_[node] == fewest) waiting.push_back(node);
    }
    if (num_rounds < 1 || waiting.empty()) return false;
    const auto num_waiting = std::ssize(waiting);
    const auto num_pairs =
        std::min(num_waiting, std::max(std::ssize(round) / kNodesPerPair[fewest],
                                       ptrdiff_t{(num_wanted + num_rounds - 1) / num_rounds}));
    bool any = false;
    for (ptrdiff_t i = 0; i < num_pairs; ++i) {
        const int node = waiting[i * num_waiting / num_pairs];
        if (const auto partner = partner_for(node, round)) pair_up(node, *partner, round), any = true;
    }
    return any;
}

/// Pairs the good nodes whose exchange was slow or wrong, and then the other good nodes. Returns whether
/// there is a pair of the first kind.
bool PairStates::pair_slow_again(Round& round) const {
    const auto is_free = [&](int node) { return good_[node] && round[node] == node; };
    bool any = false;
    for (const Pair& pair : pairs_) {
        if (!pair.bad() || pair.num_measurements > 1 || !is_free(pair.first) || !is_free(pair.second))
            continue;
        pair_up(pair.first, pair.second, round);
        any = true;
    }
    std::vector<int> others;
    for (int node = 0; node < std::ssize(round); ++node)
        if (is_free(node)) others.push_back(node);
    const size_t half = others.size() / 2;
    for (size_t i = 0; i < half; ++i) pair_up(others[i], others[half + i], round);
    return any;
}

std::optional<Round> PairStates::next_round(int num_left) const {
    Round round(good_.size());
    std::iota(round.begin(), round.end(), 0);
    if (pair_suspects(num_left - 1, round) || pair_slow_again(round)) return round;
    return std::nullopt;
}

int max_hunt_rounds(int num_nodes) {
    return 3 * static_cast<int>(std::bit_width(static_cast<unsigned>(num_nodes))) - 2;
}

}  // namespace argosy::preflight
