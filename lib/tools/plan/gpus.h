// The GPUs that plans know by name, and what words of the command line change of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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

/// The GPU that a driver calls `device`: h100 for "NVIDIA H100 80GB HBM3". None if it is not among them, or
/// has other links (PCIe) or another peak than the datasheet of its name (NVL), or is a part of one (MIG).
std::optional<std::string> gpu_of_device(std::string_view device);

}  // namespace argosy::plan
