// One problem that the pre-flight found, with its severity (`Severity`). A finding lists the nodes that the
// next start should leave out. A mistake that all nodes share lists none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

/// The worst severity of the findings; Pass if there are none.
Severity worst_severity(const std::vector<Finding>& findings);

// Lists of interfaces or adapters, as environment variables such as NCCL_IB_HCA hold them.

/// NCCL's syntax: an entry of "mlx5_0:1,mlx5" matches every name that begins with it. "^" before the list
/// makes it exclude, "=" before it requires whole names, and ":1" after an entry selects a port. MPI's and
/// UCX's lists require whole names.
class NameList {
  public:
    enum class Syntax { Nccl, WholeNames };
    NameList(std::string_view text, Syntax syntax);

    struct Entry {
        std::string name;
        int port = -1;  // -1: any
    };
    const std::vector<Entry>& entries() const { return entries_; }
    bool excludes() const { return excludes_; }

    /// Whether the entry matches this interface or adapter. `port` is -1 for interfaces, which have none.
    bool matches(const Entry& entry, std::string_view name, int port = -1) const;

    /// Whether the list as a whole chooses this interface or adapter. An empty list chooses all.
    bool chooses(std::string_view name, int port = -1) const;

  private:
    std::vector<Entry> entries_;
    bool excludes_ = false, whole_names_ = false;
};

}  // namespace argosy::preflight
