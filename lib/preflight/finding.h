// One problem that the pre-flight found, with its severity (`Severity`). A finding lists the nodes that the
// next start should leave out. A mistake that all nodes share lists none.
#pragma once

#include <string>
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

}  // namespace argosy::preflight
