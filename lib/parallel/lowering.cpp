#include "parallel/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace argosy::parallel {
namespace {

using Ops = std::vector<UnitOp>;
using UnitKey = std::pair<int, int>;  // stage, unit

UnitKey unit_of(const UnitOp& op) { return {op.stage, op.unit}; }

/// The operations of a transfer, one after the other.
std::vector<UnitOpKind> transfer_kinds(ActionKind kind) {
    switch (kind) {
        case ActionKind::SendActivation:
            return {UnitOpKind::SendActivation};
        case ActionKind::ReceiveActivation:
            return {UnitOpKind::ReceiveActivation, UnitOpKind::TakeActivation};
        case ActionKind::SendGradient:
            return {UnitOpKind::SendGradient};
        case ActionKind::ReceiveGradient:
            return {UnitOpKind::ReceiveGradient, UnitOpKind::TakeGradient};
        default:
            throw RunError("internal error: not a transfer");
    }
}

bool computes(UnitOpKind kind) {
    return kind == UnitOpKind::Forward || kind == UnitOpKind::Loss || kind == UnitOpKind::Recompute ||
           kind == UnitOpKind::BackwardInput || kind == UnitOpKind::BackwardWeight;
}

void expand(const Action& action, const StageUnits& units, Ops& ops) {
    const auto add = [&](UnitOpKind kind, int unit) {
        ops.push_back({kind, action.stage, unit, action.microbatch});
    };
    const bool input = action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardInput;
    const bool weight = action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight;
    if (action.kind == ActionKind::Forward) {
        for (int unit = 0; unit < units.num_layers; ++unit) add(UnitOpKind::Forward, unit);
    } else if (input || weight) {
        if (input && units.has_head) add(UnitOpKind::Loss, units.num_layers);
        for (int unit = units.num_layers - 1; unit >= 0; --unit) {
            if (input) add(UnitOpKind::BackwardInput, unit);
            if (weight) add(UnitOpKind::BackwardWeight, unit);
        }
    } else {
        for (const UnitOpKind kind : transfer_kinds(action.kind)) add(kind, /*unit=*/-1);
    }
}

/// The position of each unit's last op for which `wanted` holds.
template <class Predicate>
std::map<UnitKey, size_t> last_positions(const Ops& ops, Predicate wanted) {
    std::map<UnitKey, size_t> last;
    for (size_t i = 0; i < ops.size(); ++i) {
        if (wanted(ops[i])) last[unit_of(ops[i])] = i;
    }
    return last;
}

/// The embedding's backward is a sum of rows: it neither reads the table nor needs a recompute.
bool is_embedding(const UnitOp& op, const LoweringOptions& options) {
    return op.unit == 0 && options.stages[op.stage].has_embedding;
}

/// Whether the unit's weights can be freed after ops[i]: the next operation does not use them or, with
/// Reshard::Never, no later operation of this step uses them.
bool done_with_weights(const Ops& ops, size_t i, const LoweringOptions& options,
                       const std::map<UnitKey, size_t>& last_use) {
    if (options.reshard == Reshard::Never) return last_use.at(unit_of(ops[i])) == i;
    return i + 1 == ops.size() || !needs_weights(ops[i + 1], options) ||
           unit_of(ops[i + 1]) != unit_of(ops[i]);
}

const char* kind_name(UnitOpKind kind) {
    switch (kind) {
        case UnitOpKind::Gather:
            return "Gather";
        case UnitOpKind::Release:
            return "Release";
        case UnitOpKind::Forward:
            return "Forward";
        case UnitOpKind::Loss:
            return "Loss";
        case UnitOpKind::Recompute:
            return "Recompute";
        case UnitOpKind::BackwardInput:
            return "BackwardInput";
        case UnitOpKind::BackwardWeight:
            return "BackwardWeight";
        case UnitOpKind::Reduce:
            return "Reduce";
        case UnitOpKind::FinishReduce:
            return "FinishReduce";
        case UnitOpKind::SumReplicas:
            return "SumReplicas";
        case UnitOpKind::FinishSum:
            return "FinishSum";
        case UnitOpKind::SendActivation:
            return "SendActivation";
        case UnitOpKind::ReceiveActivation:
            return "ReceiveActivation";
        case UnitOpKind::TakeActivation:
            return "TakeActivation";
        case UnitOpKind::SendGradient:
            return "SendGradient";
        case UnitOpKind::ReceiveGradient:
            return "ReceiveGradient";
        case UnitOpKind::TakeGradient:
            return "TakeGradient";
    }
    return "?";
}

}  // namespace

ReduceAfter reduce_after(const layout::MeshShape& mesh) {
    return mesh.degree(layout::Axis::Pipeline) > 1 ? ReduceAfter::Step : ReduceAfter::Microbatch;
}

bool needs_weights(const UnitOp& op, const LoweringOptions& options) {
    switch (op.kind) {
        case UnitOpKind::Forward:
        case UnitOpKind::Loss:
        case UnitOpKind::Recompute:
            return true;
        case UnitOpKind::BackwardInput:
            return !is_embedding(op, options);
        default:
            return false;
    }
}

Ops expand_units(const std::vector<Action>& actions, const LoweringOptions& options) {
    Ops ops;
    for (const Action& action : actions) expand(action, options.stages[action.stage], ops);
    return ops;
}

Ops insert_recompute(const Ops& ops, const LoweringOptions& options) {
    if (options.recompute == model::RecomputeMode::None) return ops;
    Ops result;
    for (const UnitOp& op : ops) {
        if (op.kind == UnitOpKind::BackwardInput && !is_embedding(op, options)) {
            result.push_back({UnitOpKind::Recompute, op.stage, op.unit, op.microbatch});
        }
        result.push_back(op);
    }
    return result;
}

Ops insert_gathers(const Ops& ops, const LoweringOptions& options) {
    const auto uses = [&](const UnitOp& op) { return needs_weights(op, options); };
    const auto last_use = last_positions(ops, uses);
    std::map<UnitKey, bool> gathered;
    Ops result;
    for (size_t i = 0; i < ops.size(); ++i) {
        const UnitOp& op = ops[i];
        if (!uses(op)) {
            result.push_back(op);
            continue;
        }
        bool& present = gathered[unit_of(op)];
        if (!std::exchange(present, true)) result.push_back({UnitOpKind::Gather, op.stage, op.unit, -1});
        result.push_back(op);
        if (done_with_weights(ops, i, options, last_use)) {
            result.push_back({UnitOpKind::Release, op.stage, op.unit, -1});
            present = false;
        }
    }
    return result;
}

// At most one reduction is under way at a time: it runs beside the backward of the next unit, whose own
// reduction waits for it first.
Ops insert_reductions(const Ops& ops, ReduceAfter after) {
    const auto last_gradient = last_positions(ops, [](const UnitOp& op) { return makes_gradients(op.kind); });
    std::optional<UnitOp> unfinished;
    Ops result;
    const auto finish = [&] {
        if (unfinished) result.push_back(*std::exchange(unfinished, std::nullopt));
    };
    for (size_t i = 0; i < ops.size(); ++i) {
        const UnitOp& op = ops[i];
        result.push_back(op);
        if (!makes_gradients(op.kind)) continue;
        if (after == ReduceAfter::Step && last_gradient.at(unit_of(op)) != i) continue;
        finish();
        result.push_back({UnitOpKind::Reduce, op.stage, op.unit, -1});
        unfinished = UnitOp{UnitOpKind::FinishReduce, op.stage, op.unit, -1};
    }
    finish();
    return result;
}

// A unit's gradients are complete after the last microbatch has added to them and, if they are sharded, after
// their last reduction. No operation of the program reads the sums. If they are made in place, all waits are
// at the end of the program, where a late replica delays no computation. Otherwise a sum waits for the sum
// before it, so that copies of only one unit's gradients exist at a time.
Ops insert_sums(const Ops& ops, const LoweringOptions& options) {
    const auto complete = last_positions(ops, [](const UnitOp& op) {
        return makes_gradients(op.kind) || op.kind == UnitOpKind::FinishReduce;
    });
    Ops result, finishes;
    for (size_t i = 0; i < ops.size(); ++i) {
        const UnitOp& op = ops[i];
        result.push_back(op);
        const auto last = complete.find(unit_of(op));
        if (last == complete.end() || last->second != i) continue;
        if (!options.stages[op.stage].summed_units.contains(op.unit)) continue;
        if (!options.sums_in_place) {
            result.insert(result.end(), finishes.begin(), finishes.end());
            finishes.clear();
        }
        result.push_back({UnitOpKind::SumReplicas, op.stage, op.unit, -1});
        finishes.push_back({UnitOpKind::FinishSum, op.stage, op.unit, -1});
    }
    result.insert(result.end(), finishes.begin(), finishes.end());
    return result;
}

// G0 F0 R0 G1 F1 R1 G2 ... becomes G0 G1 F0 R0 G2 F1 R1 ..., where G is Gather, F is Forward and R is
// Release. Each gather moves to the old position of the gather before it, and runs while that gather's unit
// computes. Invariants:
// 1. At most two units' weights are gathered at a time (for Reshard::EveryPass).
// 2. A gather never moves before the Release of the same unit.
Ops hoist_gathers(const Ops& ops) {
    Ops result;
    size_t gather_before = 0;  // in `result`: the old position of the gather before
    for (const UnitOp& op : ops) {
        if (op.kind != UnitOpKind::Gather) {
            result.push_back(op);
            continue;
        }
        size_t position = gather_before;
        for (size_t i = gather_before; i < result.size(); ++i) {
            if (result[i].kind == UnitOpKind::Release && unit_of(result[i]) == unit_of(op)) position = i + 1;
        }
        result.insert(result.begin() + static_cast<std::ptrdiff_t>(position), op);
        gather_before = result.size();
    }
    return result;
}

// A receive starts when the action before it begins, and the message travels while that action computes:
// "F0.0 sa.0 ra.1 ta.1 F0.1" becomes "ra.1 F0.0 sa.0 ta.1 F0.1", where ra is Receive, ta is Take and sa is
// Send. The message's memory is allocated one action earlier, and no activation slot is in use for longer.
// Invariants:
// 1. At most one receive of a rank is under way at a time. Receives therefore keep their order, both ranks of
//    a channel use it in the same order, and a rank needs memory for one message besides its slots.
// 2. A message does not depend on anything that its receiver does after the start of the receive. The receive
//    therefore adds no cycle of waits; and if the receiver hangs while it computes, the message still
//    arrives, and the watchdog sees a rank that waits for nothing. Therefore a receive does not move before a
//    send of its own microbatch, and the first receive of a stage does not move: GPipe's first gradient
//    depends on the stage's last activation.
// 3. The first receive of a channel does not move. NCCL connects two ranks in the call for their first
//    message, which blocks the host of each rank until the other rank makes its call.
// tests/parallel/simulator_test.cpp checks the invariants for all schedules.
Ops hoist_receives(const Ops& ops) {
    using ActionKey = std::tuple<int, int, bool>;  // stage, microbatch, forward
    std::optional<ActionKey> action;
    size_t action_start = 0;                    // in `result`: the first computation of the last action
    std::set<std::pair<UnitOpKind, int>> seen;  // kinds of receive and their stages
    Ops result;
    for (const UnitOp& op : ops) {
        const ActionKey own{op.stage, op.microbatch, op.kind == UnitOpKind::Forward};
        if (computes(op.kind) && action != own) {
            action = own;
            action_start = result.size();
        }
        auto position = result.end();
        if (is_receive(op.kind) && !seen.insert({op.kind, op.stage}).second) {
            const auto start = result.begin() + static_cast<std::ptrdiff_t>(action_start);
            const auto stops = [&](const UnitOp& other) {
                return is_receive(other.kind) || is_take(other.kind) ||
                       (is_send(other.kind) && other.microbatch == op.microbatch);
            };
            if (std::none_of(start, result.end(), stops)) position = start;
        }
        result.insert(position, op);
    }
    return result;
}

Program assign_slots(const Ops& ops) {
    using ActivationKey = std::pair<int, int>;  // stage, microbatch
    std::map<ActivationKey, size_t> last;
    for (size_t i = 0; i < ops.size(); ++i) last[{ops[i].stage, ops[i].microbatch}] = i;

    Program program;
    std::map<ActivationKey, int> slot_of;
    std::vector<int> free_slots;
    for (size_t i = 0; i < ops.size(); ++i) {
        UnitOp op = ops[i];
        if (op.microbatch >= 0 && !is_receive(op.kind)) {
            const ActivationKey key{op.stage, op.microbatch};
            if (!slot_of.contains(key)) {
                if (free_slots.empty()) free_slots.push_back(program.num_slots++);
                slot_of[key] = free_slots.back();
                free_slots.pop_back();
            }
            op.slot = slot_of[key];
            if (last[key] == i) free_slots.push_back(op.slot);
        }
        program.ops.push_back(op);
    }
    return program;
}

Program lower(const std::vector<Action>& actions, const LoweringOptions& options) {
    Ops ops = expand_units(with_transfers(actions, static_cast<int>(options.stages.size())), options);
    ops = insert_recompute(ops, options);
    if (options.sharded) {
        ops = insert_gathers(ops, options);
        ops = insert_reductions(ops, options.reduce_after);
        ops = hoist_gathers(ops);
    }
    ops = insert_sums(ops, options);
    ops = hoist_receives(ops);
    return assign_slots(ops);
}

std::string describe(const UnitOp& op) {
    std::string text = fmt::format("{} of stage {}", kind_name(op.kind), op.stage);
    if (op.unit >= 0) text += fmt::format(" unit {}", op.unit);
    if (op.microbatch >= 0) text += fmt::format(" microbatch {}", op.microbatch);
    return text;
}

bool makes_gradients(UnitOpKind kind) {
    return kind == UnitOpKind::BackwardWeight || kind == UnitOpKind::Loss;
}

bool is_send(UnitOpKind kind) {
    return kind == UnitOpKind::SendActivation || kind == UnitOpKind::SendGradient;
}

bool is_receive(UnitOpKind kind) {
    return kind == UnitOpKind::ReceiveActivation || kind == UnitOpKind::ReceiveGradient;
}

bool is_take(UnitOpKind kind) {
    return kind == UnitOpKind::TakeActivation || kind == UnitOpKind::TakeGradient;
}

}  // namespace argosy::parallel
