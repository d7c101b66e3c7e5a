// The configurations that a search tries: meshes and microbatches for the same global batch, and narrower
// number types.
#pragma once

#include <cstdint>
#include <vector>

#include "config/job_config.h"
#include "plan/machine.h"

namespace argosy::plan {

/// The global batch of the given configuration, in samples.
int64_t global_batch(const config::JobConfig& config, int num_ranks);

/// Whether the configuration fixes the pipeline's stages.
bool has_own_stages(const config::Parallelism& mesh);

/// The meshes to try: tensor and context groups inside of a node.
std::vector<config::JobConfig> meshes(const config::JobConfig& given, int num_ranks, const Machine& machine);

/// Sets the number of sequences of a microbatch. Returns whether the global batch divides into them.
bool set_microbatch(config::JobConfig& config, int64_t batch, int64_t microbatch, int num_ranks);

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

}  // namespace argosy::plan
