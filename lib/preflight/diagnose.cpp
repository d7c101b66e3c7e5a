#include "preflight/diagnose.h"

namespace argosy::preflight {
namespace {

constexpr Check kChecks[] = {
    check_programs_alike,   check_variables_alike,
    check_slow_settings,    check_interfaces,
    check_named_adapters,   check_adapter_links,
    check_adapter_rates,    check_adapter_choice,
    check_adapter_pcie,     check_gpu_answers,
    check_num_gpus,         check_gpu_states,
    check_gpu_xids,         check_gpus_alike,
    check_gpu_compute_mode, check_locked_memory,
    check_open_files,       check_shared_memory,
    check_binding,          check_shared_cpus,
    check_cpus_near_gpus,   check_clocks,
    check_dump_folder,      check_huge_pages,
    check_governors,        check_load,
    check_free_memory,
};

}  // namespace

std::vector<Finding> diagnose(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const Check check : kChecks) append(check(cluster), findings);
    return findings;
}

}  // namespace argosy::preflight
