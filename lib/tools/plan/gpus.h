// The GPUs that plans know by name, and what words of the command line change of them.
#pragma once

#include <string>
#include <vector>

#include "config/parse.h"
#include "plan/machine.h"

namespace argosy::plan {

/// The GPU that `request.device` names, with its memory in GB if another than the table's follows: "h100",
/// "a100-40gb", "h100:96". The other options of `request` change its memory and links.
/// Throws UserError for words without a meaning.
Machine named_gpu(const config::PlanRequest& request);

/// The same without options.
Machine named_gpu(const std::string& name);

std::vector<std::string> gpu_names();

}  // namespace argosy::plan
