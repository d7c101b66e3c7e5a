// A plan of many layers or microbatches from two plans of fewer. Both are alike, so that memory, traffic and
// times lie on a line: the two plans give the rest in a fraction of the time.
#pragma once

#include "plan/plan.h"

namespace argosy::plan {

/// Continues the line from `first` through `second` by `factor` times their distance. Texts, and memory
/// shared on a node, stay those of `second`. REQUIRES: plans of the same ranks.
Plan continued(Plan second, const Plan& first, double factor);

}  // namespace argosy::plan
