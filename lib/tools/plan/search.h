// Searches the configurations of a run that fit into memory: other meshes, microbatches, recomputation and
// pipeline schedules for the same model and the same global batch.
//
// The idea: the legal degrees are few (powers of two). For each mesh the configuration that needs the least
// memory is planned first: if it does not fit even with the narrowest number types, no other configuration of
// this mesh fits. make_rough_plan() is fast, because it records few layers and few microbatches. The Pareto
// front of step time and memory remains; it is planned again in full.
//
// The number types stay those of the given configuration. Narrower ones change the numbers that training
// computes, so they are listed apart, and only where a step then fits or is at least 1 % faster (computation
// in bfloat16 in place of float32 always). The memory of a configuration with narrower types is estimated
// from the bytes that its rank holds; the fastest of these configurations is planned. Casts of products to
// eight bits (float8, MXFP8) are tried where the machine multiplies them, each in the first listed
// configuration in which it fits, and listed likewise.
//
// Asynchronous tensor parallelism is tried on and off for the promising meshes with a tensor axis of GPUs,
// whatever the given configuration says.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/job_config.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace argosy::plan {

struct Candidate {
    config::JobConfig config;
    /// The keys that differ from the given configuration, with their values as TOML.
    std::vector<std::pair<std::string, std::string>> changes;
    Plan plan;
};

/// A configuration with narrower number types.
struct Narrower {
    std::string meaning;  // "optimizer states in bfloat16, rounded stochastically"
    Candidate candidate;
};

struct Search {
    std::vector<Candidate> best;          // fastest first; each later one is slower and needs less memory
    std::optional<Candidate> given = {};  // the given configuration; none if the ranks cannot train it
    int num_planned = 0, num_too_large = 0;
    /// The smallest that does not fit, if none fits.
    std::vector<Candidate> nearest;
    /// Lines: why the first has its shards and its overlap, and which casts gain nothing, do not fit or
    /// are refused.
    std::string reason = {};
    /// Each one faster than the one before it, and than the best with the given types. If none fits with any
    /// types, one that does not fit. Computation in bfloat16 in place of float32 is apart, and the first.
    /// Casts of products are the last, the fastest first.
    std::vector<Narrower> narrower = {};
};

/// Throws UserError if no mesh of `num_ranks` ranks can train the model. REQUIRES: an ops::OpsContext exists.
Search search(const config::JobConfig& config, int num_ranks, const Machine& machine);

}  // namespace argosy::plan
