// The plan of a run: whether it fits into the memory of its devices, and how long a step takes and why. A
// plan runs a step of one rank of each pipeline stage on tensors without data, on one processor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/parse.h"
#include "layout/mesh_shape.h"
#include "plan/all_to_all.h"
#include "plan/machine.h"
#include "plan/rank_trace.h"
#include "plan/simulate.h"
#include "plan/tensor_collectives.h"

namespace argosy::plan {

struct RankPlan {
    RankTrace trace;  // without its events, which are most of its memory
    RankTime time;
    std::vector<TensorCollective> tensor_collectives = {};
    AllToAllWaits all_to_all = {};
};

struct Plan {
    std::string title;  // the model
    layout::MeshShape mesh;
    Machine machine;
    std::vector<RankPlan> ranks;   // one of each pipeline stage
    int64_t tokens = 0;            // of a step
    double seconds = 0;            // of a step
    double model_flops = 0;        // of a step and a device, by the causal formula (model/flops.h)
    double planned_imbalance = 1;  // moe.planned_imbalance; 1 as well where each rank has all experts
    double peak_flops = 0;         // of a device in bf16, as for the MFU of a run (observe/metrics.h)
    /// The type of the products, and how many times lower its peak is.
    std::string compute_type = {};
    double peak_ratio = 1;

    /// The rank with the largest peak of memory, shared memory and NCCL's included.
    const RankPlan& fullest() const;
    const RankPlan& slowest() const;
    /// The memory that the fullest rank's tensors can have; 0: none, or the machine's memory is unknown.
    int64_t room_bytes() const;
    /// The largest peak of memory, with the memory shared with other ranks.
    int64_t peak_bytes() const { return fullest().trace.peak.bytes + fullest().trace.shared_bytes; }
    bool fits() const;
    double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
    double utilisation() const { return model_flops / seconds / peak_flops; }
};

/// The machine that `request` names, with the links that it names. Measures this processor for the
/// configuration's step if it names none.
Machine choose_machine(const config::JobConfig& config, const config::PlanRequest& request);

/// Throws UserError for a configuration that pretrain refuses on `num_ranks` ranks. Many microbatches are
/// planned from two steps of fewer (plan/continued_plan.h). REQUIRES: an ops::OpsContext exists.
Plan make_plan(const config::JobConfig& config, int num_ranks, const Machine& machine);

/// The same from one step of few microbatches, which takes less time: computation and exposed communication
/// are extended to all of them. Deep stages and long pipelines are planned from shallow and short ones
/// (fewer_layers.h): from more than 8 ranks in 1F1B, memory and time are within about 6 %. FLOPs and bytes
/// are those of the few microbatches. Schedules that keep every microbatch, or name each, are planned from
/// all.
Plan make_rough_plan(const config::JobConfig& config, int num_ranks, const Machine& machine);

}  // namespace argosy::plan
