// One problem that the pre-flight found, with its severity (`Verdict`). A finding lists the nodes that the
// next start should leave out. A mistake that all nodes share lists none.
#pragma once

#include <string>
#include <vector>

namespace argosy::preflight {

enum class Verdict { Pass, Warn, Fail };

const char* name(Verdict verdict);  // "PASS"

struct Finding {
    Verdict verdict;                          // Warn or Fail
    std::string check;                        // what was checked: "CUDA_LAUNCH_BLOCKING", "matrix products"
    std::string where;                        // "rank 5 on n3", "n3, n4", "all nodes"
    std::string what;                         // what was found, and what is expected
    std::string remedy;                       // what to change
    std::vector<std::string> bad_nodes = {};  // nodes that the next start should leave out
};

/// The worst verdict of the findings; Pass if there are none.
Verdict verdict_of(const std::vector<Finding>& findings);

}  // namespace argosy::preflight
