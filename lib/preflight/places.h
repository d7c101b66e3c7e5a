// Where something was found, in words, and findings that are alike on several nodes or ranks put into one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "preflight/diagnose.h"

namespace argosy::preflight {

/// "rank 5 on n3", "ranks 0-3, 9 and 6 more", "all ranks". `ranks` ascend.
std::string describe_ranks(const std::vector<int>& ranks, const Cluster& cluster);

/// "n3", "n3, n4 and 6 more", "all nodes".
std::string describe_nodes(const std::vector<std::string>& nodes, const Cluster& cluster);

/// Names of nodes, each once, in the cluster's order.
std::vector<std::string> nodes_of(const std::vector<int>& ranks, const Cluster& cluster);

/// How many ranks a node has.
int ranks_on(const std::string& node, const Cluster& cluster);

/// The setting of a node: of its first rank. (That ranks differ is a finding of its own.) Null: not set.
const Variable* variable_on(const std::string& node, const std::string& name, const Cluster& cluster);

/// "NCCL_ALGO=Ring", and the file where NCCL reads it from one.
std::string describe(const Variable& variable);

/// Middle one in order, the upper of two; 0 of none.
double upper_median(std::vector<double> values);

/// Who is named as bad by a FAIL: a broken part makes its node bad, always; a setting does only where other
/// nodes have it right. A WARN is no reason to do without a node.
enum class Blame { Deviants, Always };

/// What is said of a node: equal words are one finding with all their nodes.
class NodeFindings {
  public:
    explicit NodeFindings(std::string check, Blame blame = Blame::Deviants)
        : check_(std::move(check)), blame_(blame) {}

    struct Words {
        Verdict verdict;
        std::string what, remedy;
        auto operator<=>(const Words&) const = default;
    };
    void add(const std::string& node, Words words);

    std::vector<Finding> findings(const Cluster& cluster) const;

  private:
    std::string check_;
    Blame blame_;
    std::vector<std::pair<Words, std::vector<std::string>>> found_;
};

}  // namespace argosy::preflight
