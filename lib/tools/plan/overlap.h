// Whether the collectives of tensor parallelism should overlap with matrix products: two plans choose
// parallelism.enable_async_tensor_parallel = "auto".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "mpi/comm.h"
#include "plan/plan.h"
#include "setup/rank_context.h"

namespace argosy::plan {

/// A table of the slowest rank for people. Empty if the mesh has no tensor axis.
std::string tensor_text(const Plan& plan);

/// The row of the table of GPUs for the driver's name of a GPU ("NVIDIA H100 80GB HBM3"), for a job of as
/// many. None for another product, also of the same chip, since its links differ.
std::optional<Machine> machine_of_gpu(const std::string& driver_name, int num_ranks = 1);

/// The choice between products with and without overlap, and the sentence that says it.
struct OverlapChoice {
    config::Switch value = config::Switch::Off;
    std::string text = {};
};

/// The choice by two rough plans: on if a step takes less time by more than 2 %. Off on processors: a rank
/// moves the data itself while it waits, so parts of products only add messages. REQUIRES: an
/// ops::OpsContext exists.
OverlapChoice choose_overlap(const config::JobConfig& config, int num_ranks, const Machine& machine);

/// A configuration in which parallelism.enable_async_tensor_parallel = "auto" is replaced by the choice.
struct ChosenConfig {
    config::JobConfig config;
    std::string text = {};  // of the choice; empty without "auto" or without a tensor axis
};
/// REQUIRES: as choose_overlap().
ChosenConfig with_overlap_chosen(const config::JobConfig& config, int num_ranks, const Machine& machine);

/// The same for a run. Rank 0 plans for its own device, logs the choice and tells it to the others. Off for a
/// GPU that plan/machine.h does not know, and where graphs that the user demands exclude it. COLLECTIVE over
/// `ranks`, those of the context.
config::JobConfig with_overlap_chosen(const config::JobConfig& config, const mpi::Comm& ranks,
                                      const setup::RankContext& context);

}  // namespace argosy::plan
