// A finding is something that the pre-flight found wrong: where, how severe, what to change, and the nodes
// that the next start should leave out. Also: texts that name ranks and nodes, and NodeFindings, which merges
// equal findings of several nodes into one.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "preflight/facts.h"

namespace argosy::preflight {

enum class Severity { Pass, Warn, Fail };

const char* name(Severity severity);  // "PASS"

struct Finding {
    Severity severity;                        // Warn or Fail
    std::string check;                        // what was checked: "CUDA_LAUNCH_BLOCKING", "matrix products"
    std::string where;                        // "rank 5 on n3", "n3, n4", "all nodes"
    std::string what;                         // what was found, and what is expected
    std::string remedy;                       // what to change
    std::vector<std::string> bad_nodes = {};  // nodes that the next start should leave out
};

/// Moves `more` to the end of `findings`.
void append(std::vector<Finding> more, std::vector<Finding>& findings);

/// Whether a finding's `check` may have this name: one of check_names(), a variable's name, an operation of
/// the step ("all_gather over tp"), "result of" an operation, or "history of" a rate.
bool is_check_name(const std::string& name);
/// The fixed names, for an error message.
std::string check_names();

/// Turns the FAIL of findings of these checks into a WARN that marks no node.
void only_warn(const std::vector<std::string>& checks, std::vector<Finding>& findings);

/// The worst severity of the findings; Pass if there are none.
Severity worst_severity(const std::vector<Finding>& findings);

/// "rank 5 on n3", "ranks 0-3, 9 on n3, n4", "all ranks"; shortened like listed(). REQUIRES: `ranks` ascend.
std::string describe_ranks(const std::vector<int>& ranks, const Cluster& cluster);

/// "n3", "n3, n4", "all nodes"; shortened like listed().
std::string describe_nodes(const std::vector<std::string>& nodes, const Cluster& cluster);

/// "NCCL_ALGO=Ring", with the file's name if NCCL reads the variable from a file.
std::string describe(const Variable& variable);

/// The nodes that a FAIL marks as bad. A WARN marks no node.
///   Deviants  the nodes that have the problem, but none if all nodes have it: for settings
///   Always    the nodes that have the problem: for broken parts
///   Minority  the nodes that have the problem. If more than half of the nodes have it, also the only node of
///             a job, it may be so by design, and the FAIL becomes a WARN
enum class Blame { Deviants, Always, Minority };

/// Collects the problems that one check finds on nodes. Equal problems of several nodes become one finding,
/// which lists each node once.
class NodeFindings {
  public:
    explicit NodeFindings(std::string check, Blame blame = Blame::Deviants)
        : check_(std::move(check)), blame_(blame) {}

    struct Problem {
        Severity severity;
        std::string what, remedy;
        auto operator<=>(const Problem&) const = default;
    };
    void add(const std::string& node, Problem problem);

    std::vector<Finding> findings(const Cluster& cluster) const;

  private:
    std::string check_;
    Blame blame_;
    std::vector<std::pair<Problem, std::vector<std::string>>> found_;  // with the nodes that have it
    std::map<Problem, size_t> numbers_;                                // of the problems in found_
    std::set<std::pair<size_t, std::string>> known_;                   // problems by number, with their nodes
};

}  // namespace argosy::preflight
