// A finding is something that the pre-flight found wrong: where, how severe, what to change, and the nodes
// that the next start should leave out. Also: the names of the checks, texts that name ranks and nodes, and
// NodeFindings, which merges equal findings of several nodes into one.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/median.h"
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

/// The severity of a node's value that should not be below the `usual` values of all nodes. Fail below the
/// lower median, because more than half of the nodes reach it. Warn below the upper median, because perhaps
/// only half of the nodes reach it. Else Pass.
Severity severity_below(const Medians& usual, double value);

/// Moves `more` to the end of `findings`.
void append(std::vector<Finding> more, std::vector<Finding>& findings);

/// The fixed names of checks. A site's --only-warn has these names, so no name changes. "Under load" in a
/// name means under stress (facts.h).
struct CheckNames {
    const char* shared_memory = "/dev/shm";
    const char* argosy_version = "Argosy's version";
    const char* cpus_of_ranks = "CPUs of the ranks";
    const char* cuda_version = "CUDA version";
    const char* dcgm = "DCGM";
    const char* gpu_pcie_under_stress = "GPU PCIe link under load";
    const char* gpu_pcie = "GPU PCIe link";
    const char* gpu_clocks_under_stress = "GPU clocks under load";
    const char* gpu_clocks = "GPU clocks";
    const char* gpu_memory_errors_under_stress = "GPU memory errors under load";
    const char* gpu_memory_errors = "GPU memory errors";
    const char* gpu_memory_in_use = "GPU memory in use";
    const char* gpu_models = "GPU models";
    const char* visible_gpus = "GPUs that CUDA sees";
    const char* mig = "MIG";
    const char* mpi_library = "MPI library";
    const char* nccl_version = "NCCL version";
    const char* adapter_links = "adapters' links";
    const char* adapter_rates = "adapters' rates";
    const char* data_between_nodes = "data between nodes";
    const char* deadline = "deadline";
    const char* dump_folder = "dump folder";
    const char* executable = "executable";
    const char* history = "history";
    const char* line_rate = "line rate of nodes";
    const char* locked_memory = "locked memory";
    const char* matrix_products = "matrix products";
    const char* num_gpus = "number of GPUs";
    const char* nvidia_smi = "nvidia-smi";
    const char* pairs_of_nodes = "pairs of nodes";
    const char* rails = "rails between nodes";
    const char* ranks_per_gpu = "ranks per GPU";
    const char* run_inputs = "settings and inputs of the run";
    const char* product_results = "results of matrix products";
    const char* sustained_products = "sustained matrix products";
};
inline constexpr CheckNames kCheckNames;

/// The starts of names that are made from others: "result of all_gather over tp", "history of rails", "plan
/// of all_gather over tp".
inline constexpr std::string_view kResultOf = "result of ", kHistoryOf = "history of ", kPlanOf = "plan of ";

/// Turns the FAIL of findings of these checks into a WARN that marks no node.
void only_warn(const std::vector<std::string>& checks, std::vector<Finding>& findings);

/// The worst severity of the findings; Pass if there are none.
Severity worst_severity(const std::vector<Finding>& findings);

/// "n3", "n3, n4". Lists the first eight names and the number of the others: "n1, ..., n8 and 6 more".
std::string listed(const std::vector<std::string>& names);

/// "rank 5 on n3", "ranks 0-3, 9 on n3, n4", "all ranks"; shortened like listed(). REQUIRES: `ranks` ascend.
std::string describe_ranks(const std::vector<int>& ranks, const Cluster& cluster);

/// "n3", "n3, n4", "all nodes"; shortened like listed().
std::string describe_nodes(const std::vector<std::string>& nodes, const Cluster& cluster);

/// "NCCL_ALGO=Ring", with the file's name if NCCL reads the variable from a file.
std::string describe(const Variable& variable);

/// The choice of the nodes that a FAIL marks as bad. A WARN marks no node.
///   Always    all nodes with the problem: for broken hardware
///   Deviants  the nodes with the problem, or none if all nodes have it: for settings
///   Minority  the nodes with the problem. But the FAIL becomes a WARN, because it may be intended, if more
///             than half of the nodes have the problem, or the job has only one node
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
