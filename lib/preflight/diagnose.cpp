#include "preflight/diagnose.h"

#include <algorithm>
#include <string_view>

namespace argosy::preflight {
namespace {

struct Row {
    Check check;
    bool of_gpus = false;  // only GPUs can have what the check finds
};

constexpr Row kChecks[] = {
    {check_programs_alike},
    {check_variables_alike},
    {check_slow_settings},
    {check_interfaces},
    {check_named_adapters},
    {check_ucx_devices},
    {check_adapter_links},
    {check_adapter_rates},
    {check_adapter_choice},
    {check_adapter_pcie},
    {.check = check_gpu_answers, .of_gpus = true},
    {.check = check_num_gpus, .of_gpus = true},
    {.check = check_gpu_states, .of_gpus = true},
    {.check = check_gpu_xids, .of_gpus = true},
    {.check = check_gpus_alike, .of_gpus = true},
    {.check = check_gpu_compute_mode, .of_gpus = true},
    {.check = check_nvlink_registration, .of_gpus = true},
    {.check = check_nvlink_cliques, .of_gpus = true},
    {check_products},
    {.check = check_gpu_counters, .of_gpus = true},
    {check_locked_memory},
    {check_open_files},
    {check_shared_memory},
    {check_binding},
    {check_shared_cpus},
    {check_cpus_near_gpus},
    {check_clocks},
    {check_dump_folder},
    {check_load},
    {check_free_memory},
};

/// Whether the check of a finding is named after a variable that only GPU libraries read.
bool is_variable_of_gpus(std::string_view check) {
    constexpr std::string_view kPrefixes[] = {"NCCL_", "CUDA_", "CUBLAS_", "NVIDIA_", "PYTORCH_"};
    return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return check.starts_with(prefix); });
}

}  // namespace

std::vector<Finding> diagnose(const Cluster& cluster) {
    // A build without CUDA leaves the version empty, and computes and communicates without GPUs.
    const bool uses_gpus =
        std::ranges::any_of(cluster.ranks, [](const RankFacts& rank) { return !rank.cuda_version.empty(); });
    std::vector<Finding> findings;
    for (const auto& [check, of_gpus] : kChecks) {
        std::vector<Finding> found = check(cluster);
        for (Finding& finding : found) {
            const bool is_unused = !uses_gpus && (of_gpus || is_variable_of_gpus(finding.check));
            if (!is_unused || finding.severity != Severity::Fail) continue;
            finding.severity = Severity::Warn;
            finding.what += "; this build does not use GPUs";
            finding.bad_nodes.clear();
        }
        append(std::move(found), findings);
    }
    return findings;
}

}  // namespace argosy::preflight
