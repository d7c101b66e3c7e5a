// From a rank's stage actions to the list of small operations that the executor runs, by pure passes over
// that list. Executor, simulator and planner all read the same list, so what is simulated is what runs.
#pragma once

#include <set>
#include <vector>

#include "model/tape.h"
#include "parallel/schedule.h"
#include "parallel/unit_op.h"

namespace argosy::parallel {

enum class Reshard {
    EveryPass,
    Never
};  // when gathered weights are given back: after each pass, or at the end
enum class ReduceAfter { Microbatch, Step };  // when gradients are summed over the shards

/// What the passes must know of a rank's stages.
struct StageUnits {
    int num_layers = 0;  // units 0 .. num_layers-1: the embedding (if first) and blocks
    bool has_embedding = false;
    bool has_head = false;            // unit num_layers
    std::set<int> summed_units = {};  // that have gradients to sum over replicas: see placement.h
};

struct LoweringOptions {
    std::vector<StageUnits> stages;  // by stage number; those of other ranks are not looked at
    bool sharded = false;            // weights are spread over more than one rank
    Reshard reshard = Reshard::EveryPass;
    ReduceAfter reduce_after = ReduceAfter::Microbatch;
    model::Keep keep = model::Keep::Everything;
};

/// Whether it reads its unit's weights.
bool needs_weights(const UnitOp& op, const LoweringOptions& options);

struct Program {
    std::vector<UnitOp> ops;
    int num_slots = 0;  // microbatches in flight at once
};

/// All passes in order.
Program lower(const std::vector<Action>& actions, const LoweringOptions& options);

// The passes.
std::vector<UnitOp> expand_units(const std::vector<Action>& actions, const LoweringOptions& options);
std::vector<UnitOp> insert_recompute(const std::vector<UnitOp>& ops, const LoweringOptions& options);
std::vector<UnitOp> insert_gathers(const std::vector<UnitOp>& ops, const LoweringOptions& options);
std::vector<UnitOp> insert_reductions(const std::vector<UnitOp>& ops, ReduceAfter after);
std::vector<UnitOp> insert_sums(const std::vector<UnitOp>& ops, const LoweringOptions& options);
std::vector<UnitOp> hoist_gathers(const std::vector<UnitOp>& ops);
Program assign_slots(const std::vector<UnitOp>& ops);

}  // namespace argosy::parallel
