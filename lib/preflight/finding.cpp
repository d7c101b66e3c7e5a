#include "preflight/finding.h"

#include <algorithm>

namespace argosy::preflight {

const char* name(Severity severity) {
    constexpr const char* kNames[] = {"PASS", "WARN", "FAIL"};
    return kNames[static_cast<int>(severity)];
}

Severity worst_severity(const std::vector<Finding>& findings) {
    Severity worst = Severity::Pass;
    for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
    return worst;
}

}  // namespace argosy::preflight
