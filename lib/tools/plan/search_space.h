// The configurations that a search tries, and their rough plans: meshes and microbatches for the same global
// batch, recomputation, schedules, and narrower number types.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace argosy::plan {

/// A configuration with its plan, or the reason why no run can have it.
struct Trial {
    config::JobConfig config;
    std::optional<Plan> plan;
    std::string refusal;
};

/// Calls work(0) to work(count - 1) on several threads, each with an ops::OpsContext. Rethrows the error of
/// the first. REQUIRES: an ops::OpsContext exists.
void on_threads(size_t count, const std::function<void(size_t)>& work);

/// Tries all meshes, with tensor and context groups inside of a node, and all degrees that divide experts; on
/// each of them some sizes of microbatches and all modes of recomputation, until none fits even with the
/// narrowest number types. Plans on several threads. REQUIRES: an ops::OpsContext exists.
std::vector<Trial> try_meshes(const config::JobConfig& given, int num_ranks, const Machine& machine);

/// The configurations with plans of all their layers. Plans on several threads. REQUIRES: make_plan() takes
/// each, and an ops::OpsContext exists.
std::vector<Trial> try_in_full(const std::vector<config::JobConfig>& configs, int num_ranks,
                               const Machine& machine);

/// Tries asynchronous tensor parallelism in each of the trials, and other schedules where ranks wait for
/// other stages for 4 % of a step or more, likewise. REQUIRES: the trials have plans.
std::vector<Trial> try_refinements(const std::vector<const Trial*>& promising, int num_ranks,
                                   const Machine& machine);

bool has_tensor_axis(const config::JobConfig& config);
/// The configuration with asynchronous tensor parallelism in place of none, or without it.
config::JobConfig with_other_overlap(config::JobConfig config);

/// A row of a table of number types that need less memory than wider ones.
struct NumberTypes {
    const char* meaning;  // for people
    void (*set)(config::JobConfig&);
};

/// The rows that narrow the types of `given`, the widest first. None for a float64 run, which is for
/// comparisons.
std::vector<const NumberTypes*> narrower_types(const config::JobConfig& given);

/// The casts of products to eight bits that a machine computes in float8, each with all keys of a recipe, and
/// first their absence. None for a machine without float8, or for a float64 run.
std::vector<const NumberTypes*> product_casts(const config::JobConfig& given, const Machine& machine);

/// Sets the types of the row and of all rows before it.
config::JobConfig with_types(config::JobConfig config, const NumberTypes& row);

/// The memory of a plan with types of `given` after with_types(), if a rank saves half of what it holds in
/// wider ones.
int64_t bytes_with(const Plan& plan, const config::JobConfig& given, const NumberTypes& row);

/// Whether a plan fits, or may fit with the narrowest types.
bool could_fit(const Plan& plan, const config::JobConfig& given);

}  // namespace argosy::plan
