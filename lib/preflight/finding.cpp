#include "preflight/finding.h"

#include <algorithm>

namespace argosy::preflight {

const char* name(Verdict verdict) {
    constexpr const char* kNames[] = {"PASS", "WARN", "FAIL"};
    return kNames[static_cast<int>(verdict)];
}

Verdict verdict_of(const std::vector<Finding>& findings) {
    Verdict worst = Verdict::Pass;
    for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
    return worst;
}

}  // namespace argosy::preflight
