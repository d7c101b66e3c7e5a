// What the pre-flight has to say of one thing that it looked at. Whoever finds it out names the nodes that
// the next start should do without; a mistake that all nodes share names none.
#pragma once

#include <string>
#include <vector>

namespace argosy::preflight {

enum class Verdict { Pass, Warn, Fail };

const char* name(Verdict verdict);  // "PASS"

struct Finding {
    Verdict verdict;                          // Warn or Fail
    std::string check;                        // what was looked at: "CUDA_LAUNCH_BLOCKING", "matrix products"
    std::string where;                        // "rank 5 on n3", "n3, n4", "all nodes"
    std::string what;                         // what was found, beside what is expected
    std::string remedy;                       // what to change
    std::vector<std::string> bad_nodes = {};  // at fault
};

/// The worst of them; Pass where there are none.
Verdict verdict_of(const std::vector<Finding>& findings);

}  // namespace argosy::preflight
