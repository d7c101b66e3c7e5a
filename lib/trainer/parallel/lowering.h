// Lowering: turns a rank's compute actions (parallel/schedule.h) into the list of small operations that the
// executor runs. Each pass is a pure function from a list to a list. tests/parallel/simulator.h checks the
// lists of all ranks against each other without running them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "layout/mesh_shape.h"
#include "model/layer.h"
#include "parallel/schedule.h"

namespace argosy::parallel {

/// The small operations of a rank's program. lowering.cpp has a table of facts about them.
enum class UnitOpKind {
    Gather,             // start to all-gather a set's weights
    Release,            // free the gathered weights
    Forward,            // one layer
    Loss,               // the head: loss, input gradient and its own weights' gradients in one operation
    LossInput,          // the head: loss and input gradient; its BackwardWeight comes later
    ForwardLoss,        // the head: the loss alone, in a program without backward passes
    Recompute,          // compute again the activations that a layer's forward did not keep
    BackwardInput,      // the gradient of a layer's input
    BackwardWeight,     // the gradients of a layer's weights
    Reduce,             // start to reduce-scatter a set's gradients over the shards
    FinishReduce,       // wait for the reduce-scatter
    Sum,                // start to all-reduce a set's gradients of the step over replicas and tensor axis
    FinishSum,          // wait for the all-reduce
    SendTable,          // start to send the gradient of a tied table to the other stage that holds the table
    ReceiveTable,       // start to receive that stage's gradient of the table
    AddTable,           // wait for both, and add that gradient to this stage's
    SendActivation,     // start to send
    ReceiveActivation,  // start to receive
    TakeActivation,     // wait for the receive; the slot gets the activation
    SendGradient,
    ReceiveGradient,
    TakeGradient,
    MoveActivation,  // the slot takes the activation over from the slot of the stage before
    MoveGradient,    // the slot takes the gradient over from the slot of the next stage
};
inline constexpr int kNumUnitOpKinds = static_cast<int>(UnitOpKind::MoveGradient) + 1;

struct UnitOp {
    UnitOpKind kind;
    int stage;
    int unit;              // number of the unit in the stage; -1 for transfers
    int microbatch;        // -1 for gathers, releases, reductions, sums and tables
    int slot = -1;         // number of the slot that holds the microbatch's activations; -1: the op uses none
    int source_slot = -1;  // of a move: the slot that gives the data
    int set = 0;           // of gathers, releases, reductions and sums: the number of the set in the unit
    bool operator==(const UnitOp&) const = default;
};

/// The text for messages: "Forward of stage 1 unit 2 microbatch 3", "Sum of stage 1 unit 2 set 1" (the first
/// set is not named).
std::string describe(const UnitOp& op);

/// Whether operations of this kind add to their unit's gradients.
bool makes_gradients(UnitOpKind kind);

/// Whether operations of this kind start to send, start to receive, or wait for a receive.
bool is_send(UnitOpKind kind);
bool is_receive(UnitOpKind kind);
bool is_take(UnitOpKind kind);
/// Whether operations of this kind take data over from another stage of the same rank.
bool is_move(UnitOpKind kind);
/// Whether operations of this kind can leave something for a later microbatch: gathered weights, or a
/// transfer or reduction that is under way.
bool affects_later_microbatches(UnitOpKind kind);
/// The stage from which a take or a move has its data.
int source_stage(const UnitOp& op);

/// When gathered weights are freed.
enum class Reshard {
    EveryPass,  // after each forward or backward
    Never,      // after their last use in the step
};
/// When gradients are summed over the shards.
enum class ReduceAfter { Microbatch, Step };
/// After the step in a pipeline, where the microbatches of a unit are far apart; else after each microbatch.
ReduceAfter reduce_after(const layout::MeshShape& mesh);

/// A set of a unit's parameters (placement.h), as far as the passes need it.
struct UnitSet {
    bool sharded = false;  // over more than one rank
    bool summed = false;   // has gradients to sum over ranks
};

/// The units of one stage, as far as the passes need them.
struct StageUnits {
    int num_layers = 0;          // units 0 .. num_layers-1: blocks, and on the first stage the embedding
    bool has_embedding = false;  // unit 0
    bool has_head = false;       // unit num_layers
    int tied_unit = -1;          // the unit with a tied table that another rank's stage holds too
    std::vector<std::vector<UnitSet>> sets = {};  // by unit

    std::span<const UnitSet> sets_of(int unit) const;
};

struct LoweringOptions {
    std::vector<StageUnits> stages;  // by number; those of other ranks have no effect
    Reshard reshard = Reshard::EveryPass;
    ReduceAfter reduce_after = ReduceAfter::Microbatch;
    model::RecomputeMode recompute = model::RecomputeMode::None;
    bool sums_in_place = true;  // whether sums over ranks take no extra memory
    bool forward_only = false;  // the loss follows the last stage's forward
};

/// Whether `op` reads its unit's weights.
bool needs_weights(const UnitOp& op, const LoweringOptions& options);

struct Program {
    std::vector<UnitOp> ops;
    int num_slots = 0;  // maximum number of (stage, microbatch) pairs whose activations exist at once
    /// The values of the LoweringOptions: what a layer's forward keeps for its backward, and whether there is
    /// no backward, so that nothing is kept after the layer.
    model::RecomputeMode recompute = model::RecomputeMode::None;
    bool forward_only = false;
};

/// Runs all passes. `actions`: of one rank, with its transfers (parallel/transfers.h).
Program lower(const std::vector<Action>& actions, const LoweringOptions& options);

// The passes, in the order in which lower() calls them.
std::vector<UnitOp> expand_units(const std::vector<Action>& actions, const LoweringOptions& options);
std::vector<UnitOp> insert_recompute(const std::vector<UnitOp>& ops, const LoweringOptions& options);
std::vector<UnitOp> insert_gathers(const std::vector<UnitOp>& ops, const LoweringOptions& options);
std::vector<UnitOp> insert_reductions(const std::vector<UnitOp>& ops, const LoweringOptions& options);
std::vector<UnitOp> hoist_gathers(const std::vector<UnitOp>& ops);
std::vector<UnitOp> insert_sums(const std::vector<UnitOp>& ops, const LoweringOptions& options);
std::vector<UnitOp> insert_table_exchange(const std::vector<UnitOp>& ops, const LoweringOptions& options);
Program assign_slots(const std::vector<UnitOp>& ops);

}  // namespace argosy::parallel
