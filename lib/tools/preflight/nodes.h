// The nodes of a job, their names and ranks, the pairs in which nodes exchange data, and the hunt for bad
// nodes and slow paths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace argosy::preflight {

struct Node {
    std::string name;
    std::vector<int> ranks;  // ascending
};

/// Nodes in the order of their first ranks. `names` has the node's name for each rank.
std::vector<Node> group_by_node(const std::vector<std::string>& names);

std::vector<std::string> names_of(const std::vector<Node>& nodes);

/// "n3", "n3, n4". Lists the first eight names and the number of the others: "n1, ..., n8 and 6 more".
std::string listed(const std::vector<std::string>& names);

/// Rounds in which nodes are paired. A node has a different partner in each round. If the number of nodes is
/// odd, one node per round is alone (its own partner). The full schedule pairs every node with every other
/// node. The function returns at most `max_rounds` rounds, spread evenly over the full schedule. In the first
/// round, partners have neighbouring numbers: such nodes are often at the same switch.
using Round = std::vector<int>;  // partner of each node
std::vector<Round> rounds_of_pairs(int num_nodes, int max_rounds);

/// The speed between two nodes: for the ranks at the same place on both, the bytes a second that each sends
/// while it receives as much.
struct PairSpeed {
    int first, second;  // nodes; first < second
    std::vector<double> rails = {};
    int64_t num_wrong = 0;  // elements

    double rate() const;  // the sum of the rails
};

// The hunt: a pair is slow because one of its nodes is bad, or because the path between two good nodes is
// slow (a link between switches). Rounds of disjoint pairs show which:
// 1. A node is good if each of its ranks was fast with a partner, and no data was wrong with this partner.
//    Fast: the exchange is not among the slow pairs, and reaches three quarters of the upper quartile of the
//    nodes' best rates. The second condition is for jobs with so many bad nodes that slow pairs are usual.
// 2. A node that is not good yet gets a good partner, twice: the free one with the nearest number, because
//    links between switches may carry less than all of their nodes send. For the same reason few nodes get
//    partners in a round, and the other nodes are quiet. A node that proves good is a partner for others.
// 3. Then a slow pair of good nodes is measured again, once, because other traffic may have been the reason.
//    The other good nodes exchange in pairs, too, so that the network carries as much as before.
// Rounds: 0 if no pair was slow, about 3 log2(n) at most.

/// A pair of good nodes that is slow in all of its measurements.
struct SlowPath {
    int first, second;        // nodes
    std::optional<int> rail;  // the place of the slowest rank; none: all ranks are slow
    double share;             // of the others' median
    int num_measurements;
};

/// The conclusions from the measured pairs.
class PairStates {
  public:
    /// The pairs from number `num_before_hunt` on were measured in the hunt.
    PairStates(const std::vector<PairSpeed>& pairs, size_t num_before_hunt, int num_nodes);

    std::vector<SlowPath> slow_paths() const;

    /// Whether each rank of the node was fast with a partner with which no data was wrong. No finding on the
    /// speeds of pairs may mark such a node as bad.
    bool is_good(int node) const { return good_[node]; }

    /// The next round of the hunt; none if there is nothing left to find out. `num_left`: rounds that may
    /// follow, with this one. REQUIRES: some pair was measured.
    std::optional<Round> next_round(int num_left) const;

  private:
    struct Pair {
        int first, second;
        std::vector<double> rails;  // the best of all measurements
        int num_measurements = 0, num_in_hunt = 0;
        bool wrong = false;
        std::vector<char> slow_rails = {};
        std::optional<SlowPath> slow = {};
        bool bad() const { return slow || wrong; }
        double mean_rail() const {
            return std::accumulate(rails.begin(), rails.end(), 0.0) / static_cast<double>(rails.size());
        }
    };
    void find_slow_rails(size_t place);
    void find_slow_pairs();
    std::vector<double> min_fast_rates() const;
    void find_good_nodes();
    std::optional<int> partner_for(int node, const Round& round) const;
    bool pair_suspects(int num_rounds, Round& round) const;
    bool pair_slow_again(Round& round) const;

    std::vector<Pair> pairs_;                 // each pair once, sorted
    std::vector<char> good_;                  // by node
    std::vector<int> num_tries_;              // by node: exchanges with a good partner in the hunt
    std::vector<std::vector<int>> partners_;  // by node: with which it has exchanged data
};

/// The rounds after which the hunt ends with what it has found out.
int max_hunt_rounds(int num_nodes);

}  // namespace argosy::preflight
