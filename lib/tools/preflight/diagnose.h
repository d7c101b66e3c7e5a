// Finds what is wrong with a set of nodes, from the facts that their ranks collected. All functions are pure,
// and only rank 0 calls them.
//
// Sources: diagnose.cpp has diagnose(), its table of checks, and not_checked(). The checks are in
// check_*.cpp, as the comments below say.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "preflight/facts.h"
#include "preflight/finding.h"

namespace argosy::preflight {

/// All findings, in the order of the checks. Equal problems on several nodes or ranks make one finding.
std::vector<Finding> diagnose(const Cluster& cluster);

/// Lines that each name something that could not be looked at, and the reason. `type`: of the matrix
/// products.
std::vector<std::string> not_checked(const Cluster& cluster, at::ScalarType type);

// The checks, one function each, grouped by topic. A check returns a finding for each thing that is wrong.
// CHECKS.md describes each check. The severities are chosen so that a machine without GPUs and fabric gets no
// FAIL.

using Check = std::vector<Finding> (*)(const Cluster&);

// check_settings.cpp (the table of slow settings is in base/environment.h)
std::vector<Finding> check_slow_settings(const Cluster& cluster);
std::vector<Finding> check_variables_alike(const Cluster& cluster);
std::vector<Finding> check_programs_alike(const Cluster& cluster);
std::vector<Finding> check_run_inputs_alike(const Cluster& cluster);
std::vector<Finding> check_interfaces(const Cluster& cluster);

// check_adapters.cpp
std::vector<Finding> check_named_adapters(const Cluster& cluster);
std::vector<Finding> check_adapter_links(const Cluster& cluster);
std::vector<Finding> check_num_adapters(const Cluster& cluster);
std::vector<Finding> check_adapter_rates(const Cluster& cluster);
std::vector<Finding> check_adapter_choice(const Cluster& cluster);
std::vector<Finding> check_adapters_after(const Cluster& cluster);

// check_gpus.cpp
std::vector<Finding> check_gpu_states(const Cluster& cluster);
std::vector<Finding> check_gpu_answers(const Cluster& cluster);
std::vector<Finding> check_gpu_memory_under_stress(const Cluster& cluster);
std::vector<Finding> check_num_gpus(const Cluster& cluster);
std::vector<Finding> check_gpus_alike(const Cluster& cluster);

// dcgm.cpp
std::vector<Finding> check_dcgm(const Cluster& cluster);

// check_visible_gpus.cpp. All findings are FAIL and mean that some rank has no GPU of its own.
std::vector<Finding> check_visible_gpus(const Cluster& cluster);
std::vector<Finding> check_ranks_per_gpu(const Cluster& cluster);

// check_stress.cpp
std::vector<Finding> check_products(const Cluster& cluster);
/// Compares the rates under stress, and is not in diagnose()'s table because rates are only comparable if
/// ranks do not share cores. Products get a finding if they are slower than those of devices of the same
/// kind, or slow for the device's datasheet. Processors are left out: their products are so short that other
/// programs disturb them. `type`: of the products.
std::vector<Finding> compare_stress(const Cluster& cluster, at::ScalarType type);

// check_hosts.cpp
std::vector<Finding> check_locked_memory(const Cluster& cluster);
std::vector<Finding> check_shared_memory(const Cluster& cluster);
std::vector<Finding> check_dump_folder(const Cluster& cluster);
std::vector<Finding> check_binding(const Cluster& cluster);
std::vector<Finding> check_shared_cpus(const Cluster& cluster);
std::vector<Finding> check_cpus_near_gpus(const Cluster& cluster);

}  // namespace argosy::preflight
