#include "parallel/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"

namespace argosy::parallel {
namespace {

using Ops = std::vector<UnitOp>;
using UnitKey = std::pair<int, int>;     // stage, unit
using SetKey = std::pair<UnitKey, int>;  // unit, number of the set

UnitKey unit_of(const UnitOp& op) { return {op.stage, op.unit}; }

/// An operation of a set of the unit.
UnitOp of_set(UnitOpKind kind, UnitKey unit, int set) {
    return {.kind = kind, .stage = unit.first, .unit = unit.second, .microbatch = -1, .set = set};
}

/// The operations of those sets of the unit for which `fact` holds.
Ops of_sets(UnitOpKind kind, UnitKey unit, bool UnitSet::*fact, const LoweringOptions& options) {
    Ops ops;
    for (int number = 0; const UnitSet& set : options.stages[unit.first].sets_of(unit.second)) {
        if (set.*fact) ops.push_back(of_set(kind, unit, number));
        ++number;
    }
    return ops;
}

void append(Ops& ops, const Ops& more) { ops.insert(ops.end(), more.begin(), more.end()); }

// Facts about a kind, one bit each. The last is a permission: it is safe to leave it out.
constexpr unsigned kReadsWeights = 1 << 0;    // of its unit; for BackwardInput see needs_weights()
constexpr unsigned kMakesGradients = 1 << 1;  // adds to its unit's gradients
constexpr unsigned kSends = 1 << 2;           // starts to send
constexpr unsigned kReceives = 1 << 3;        // starts to receive
constexpr unsigned kTakes = 1 << 4;           // waits for a receive
constexpr unsigned kMoves = 1 << 5;           // takes data over from another stage of the rank
constexpr unsigned kLeavesNothing = 1 << 6;   // see affects_later_microbatches()

struct KindRow {
    UnitOpKind kind;
    const char* name;
    unsigned facts;
    std::optional<ActionKind> transfer = {};  // the action that becomes this operation
};

// A set's sum and the exchange of a table follow the last microbatch: they leave nothing for a later one.
constexpr auto kRows = [] {
    using enum UnitOpKind;
    return std::to_array<KindRow>({
        {Gather, "Gather", 0},
        {Release, "Release", 0},
        {Forward, "Forward", kReadsWeights | kLeavesNothing},
        {Loss, "Loss", kReadsWeights | kMakesGradients | kLeavesNothing},
        {LossInput, "LossInput", kReadsWeights | kLeavesNothing},
        {ForwardLoss, "ForwardLoss", kReadsWeights | kLeavesNothing},
        {Recompute, "Recompute", kReadsWeights | kLeavesNothing},
        {BackwardInput, "BackwardInput", kReadsWeights | kLeavesNothing},
        {BackwardWeight, "BackwardWeight", kMakesGradients | kLeavesNothing},
        {Reduce, "Reduce", 0},
        {FinishReduce, "FinishReduce", 0},
        {Sum, "Sum", kLeavesNothing},
        {FinishSum, "FinishSum", kLeavesNothing},
        {SendTable, "SendTable", kSends | kLeavesNothing},
        {ReceiveTable, "ReceiveTable", kReceives | kLeavesNothing},
        {AddTable, "AddTable", kTakes | kLeavesNothing},
        {SendActivation, "SendActivation", kSends, ActionKind::SendActivation},
        {ReceiveActivation, "ReceiveActivation", kReceives, ActionKind::ReceiveActivation},
        {TakeActivation, "TakeActivation", kTakes, ActionKind::TakeActivation},
        {SendGradient, "SendGradient", kSends, ActionKind::SendGradient},
        {ReceiveGradient, "ReceiveGradient", kReceives, ActionKind::ReceiveGradient},
        {TakeGradient, "TakeGradient", kTakes, ActionKind::TakeGradient},
        {MoveActivation, "MoveActivation", kMoves | kLeavesNothing, ActionKind::MoveActivation},
        {MoveGradient, "MoveGradient", kMoves | kLeavesNothing, ActionKind::MoveGradient},
    });
}();

constexpr bool each_kind_has_its_row() {
    for (size_t i = 0; i < kRows.size(); ++i) {
        if (kRows[i].kind != static_cast<UnitOpKind>(i)) return false;
    }
    return kRows.size() == kNumUnitOpKinds;
}
static_assert(each_kind_has_its_row());

const KindRow& row_of(UnitOpKind kind) { return kRows[static_cast<size_t>(kind)]; }
bool has(UnitOpKind kind, unsigned fact) { return (row_of(kind).facts & fact) != 0; }

UnitOpKind kind_of_transfer(ActionKind action) {
    const auto row = std::ranges::find(kRows, std::optional(action), &KindRow::transfer);
    ARGOSY_CHECK(row != kRows.end(), "not a transfer");
    return row->kind;
}

void expand(const Action& action, const StageUnits& units, bool forward_only, Ops& ops) {
    const auto add = [&](UnitOpKind kind, int unit) {
        ops.push_back({kind, action.stage, unit, action.microbatch});
    };
    const bool input = action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardInput;
    const bool weight = action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight;
    if (action.kind == ActionKind::Forward) {
        for (int unit = 0; unit < units.num_layers; ++unit) add(UnitOpKind::Forward, unit);
        if (forward_only && units.has_head) add(UnitOpKind::ForwardLoss, units.num_layers);
    } else if (input || weight) {
        if (input && units.has_head) add(weight ? UnitOpKind::Loss : UnitOpKind::LossInput, units.num_layers);
        if (!input && units.has_head) add(UnitOpKind::BackwardWeight, units.num_layers);
        for (int unit = units.num_layers - 1; unit >= 0; --unit) {
            if (input) add(UnitOpKind::BackwardInput, unit);
            if (weight) add(UnitOpKind::BackwardWeight, unit);
        }
    } else {
        add(kind_of_transfer(action.kind), /*unit=*/-1);
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

/// The positions from which on the gradients of each set need nothing more of this rank but their sum.
std::map<SetKey, size_t> positions_of_complete_gradients(const Ops& ops, const LoweringOptions& options) {
    std::map<SetKey, size_t> complete;
    for (size_t i = 0; i < ops.size(); ++i) {
        if (ops[i].kind == UnitOpKind::FinishReduce) complete[{unit_of(ops[i]), ops[i].set}] = i;
        if (!makes_gradients(ops[i].kind)) continue;
        const auto sets = options.stages[ops[i].stage].sets_of(ops[i].unit);
        for (int set = 0; set < std::ssize(sets); ++set) complete[{unit_of(ops[i]), set}] = i;
    }
    // The embedding's sum may include the gradient that the head adds to a tied table.
    const auto embedding = complete.find({{0, 0}, 0});
    const auto last_stage = static_cast<int>(options.stages.size()) - 1;
    const auto head = complete.find({{last_stage, options.stages[last_stage].num_layers}, 0});
    if (embedding != complete.end() && head != complete.end()) {
        embedding->second = std::max(embedding->second, head->second);
    }
    return complete;
}

}  // namespace

std::span<const UnitSet> StageUnits::sets_of(int unit) const {
    ARGOSY_CHECK(std::cmp_less(unit, sets.size()), "unit {} has no sets", unit);
    return sets[unit];
}

ReduceAfter reduce_after(const layout::MeshShape& mesh) {
    return mesh.degree(layout::Axis::Pipeline) > 1 ? ReduceAfter::Step : ReduceAfter::Microbatch;
}

bool needs_weights(const UnitOp& op, const LoweringOptions& options) {
    return has(op.kind, kReadsWeights) &&
           !(op.kind == UnitOpKind::BackwardInput && is_embedding(op, options));
}

Ops expand_units(const std::vector<Action>& actions, const LoweringOptions& options) {
    Ops ops;
    for (const Action& action : actions)
        expand(action, options.stages[action.stage], options.forward_only, ops);
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
    std::set<UnitKey> gathered;
    Ops result;
    for (size_t i = 0; i < ops.size(); ++i) {
        const UnitOp& op = ops[i];
        if (!uses(op)) {
            result.push_back(op);
            continue;
        }
        const auto of_sharded = [&](UnitOpKind kind) {
            return of_sets(kind, unit_of(op), &UnitSet::sharded, options);
        };
        if (gathered.insert(unit_of(op)).second) append(result, of_sharded(UnitOpKind::Gather));
        result.push_back(op);
        if (done_with_weights(ops, i, options, last_use)) {
            append(result, of_sharded(UnitOpKind::Release));
            gathered.erase(unit_of(op));
        }
    }
    return result;
}

// The reductions of at most one unit are under way at a time: they run beside the backward of the next unit,
// whose own reductions wait for them first.
Ops insert_reductions(const Ops& ops, const LoweringOptions& options) {
    const auto last_gradient = last_positions(ops, [](const UnitOp& op) { return makes_gradients(op.kind); });
    Ops result, finishes;
    for (size_t i = 0; i < ops.size(); ++i) {
        const UnitOp& op = ops[i];
        result.push_back(op);
        if (!makes_gradients(op.kind)) continue;
        if (options.reduce_after == ReduceAfter::Step && last_gradient.at(unit_of(op)) != i) continue;
        append(result, std::exchange(finishes, {}));
        append(result, of_sets(UnitOpKind::Reduce, unit_of(op), &UnitSet::sharded, options));
        finishes = of_sets(UnitOpKind::FinishReduce, unit_of(op), &UnitSet::sharded, options);
    }
    append(result, finishes);
    return result;
}

// A set's gradients are complete after the last microbatch has added to them and, if they are sharded, after
// their last reduction. No computation reads the sums. If they are made in place, all waits are at the end of
// the program, where a late rank delays no computation. Otherwise a sum waits for the sum before it, so that
// copies of only one set's gradients exist at a time.
Ops insert_sums(const Ops& ops, const LoweringOptions& options) {
    const auto complete = positions_of_complete_gradients(ops, options);
    std::multimap<size_t, SetKey> complete_at;
    for (const auto& [set, position] : complete) complete_at.insert({position, set});

    Ops result, finishes;
    for (size_t i = 0; i < ops.size(); ++i) {
        result.push_back(ops[i]);
        for (auto [next, end] = complete_at.equal_range(i); next != end; ++next) {
            const auto& [unit, set] = next->second;
            if (!options.stages[unit.first].sets_of(unit.second)[set].summed) continue;
            if (!options.sums_in_place) append(result, std::exchange(finishes, {}));
            result.push_back(of_set(UnitOpKind::Sum, unit, set));
            finishes.push_back(of_set(UnitOpKind::FinishSum, unit, set));
        }
    }
    append(result, finishes);
    return result;
}

// A table's gradient is the last message on its channels: both ranks start to send it and to receive it after
// their last transfer, so each channel's messages have one order on both ranks. A rank receives while it
// computes its last backward pass, and sends once its own gradient is complete and summed over the replicas.
Ops insert_table_exchange(const Ops& ops, const LoweringOptions& options) {
    std::optional<UnitKey> table;
    size_t last_transfer = 0, complete = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
        const UnitOp& op = ops[i];
        if (is_send(op.kind) || is_receive(op.kind) || is_take(op.kind)) last_transfer = i;
        if (op.unit < 0 || op.unit != options.stages[op.stage].tied_unit) continue;
        if (makes_gradients(op.kind) || op.kind == UnitOpKind::FinishReduce ||
            op.kind == UnitOpKind::FinishSum) {
            table = unit_of(op);
            complete = i;
        }
    }
    if (!table) return ops;
    const auto of_table = [&](UnitOpKind kind) { return UnitOp{kind, table->first, table->second, -1}; };
    Ops result;
    for (size_t i = 0; i < ops.size(); ++i) {
        result.push_back(ops[i]);
        if (i == last_transfer) result.push_back(of_table(UnitOpKind::ReceiveTable));
        if (i == std::max(last_transfer, complete)) result.push_back(of_table(UnitOpKind::SendTable));
    }
    result.push_back(of_table(UnitOpKind::AddTable));
    return result;
}

// G0 F0 R0 G1 F1 R1 G2 ... becomes G0 G1 F0 R0 G2 F1 R1 ..., where G is Gather, F is Forward and R is
// Release. Each gather moves to the old position of the gather before it, and runs while that gather's unit
// computes. The gathers of a unit's sets move together. Invariants:
// 1. At most two units' weights are gathered at a time (for Reshard::EveryPass).
// 2. A gather never moves before the Release of the same unit.
Ops hoist_gathers(const Ops& ops) {
    Ops result;
    size_t gather_before = 0;  // in `result`: the old position of the gathers before
    for (size_t first = 0, count = 1; first < ops.size(); first += count, count = 1) {
        const UnitOp& op = ops[first];
        if (op.kind != UnitOpKind::Gather) {
            result.push_back(op);
            continue;
        }
        const auto is_of_unit = [&](const UnitOp& other, UnitOpKind kind) {
            return other.kind == kind && unit_of(other) == unit_of(op);
        };
        while (first + count < ops.size() && is_of_unit(ops[first + count], UnitOpKind::Gather)) ++count;
        size_t position = gather_before;
        for (size_t i = gather_before; i < result.size(); ++i) {
            if (is_of_unit(result[i], UnitOpKind::Release)) position = i + 1;
        }
        result.insert(result.begin() + static_cast<std::ptrdiff_t>(position), &op, &op + count);
        gather_before = result.size();
    }
    return result;
}

Program assign_slots(const Ops& ops) {
    using ActivationKey = std::pair<int, int>;  // stage, microbatch
    const auto source_of = [](const UnitOp& op) { return ActivationKey{source_stage(op), op.microbatch}; };
    std::map<ActivationKey, size_t> last;
    for (size_t i = 0; i < ops.size(); ++i) {
        last[{ops[i].stage, ops[i].microbatch}] = i;
        if (is_move(ops[i].kind)) last[source_of(ops[i])] = i;
    }

    Program program;
    std::map<ActivationKey, int> slot_of;
    std::vector<int> free_slots;
    const auto use = [&](const ActivationKey& key) {
        if (!slot_of.contains(key)) {
            if (free_slots.empty()) free_slots.push_back(program.num_slots++);
            slot_of[key] = free_slots.back();
            free_slots.pop_back();
        }
        return slot_of[key];
    };
    for (size_t i = 0; i < ops.size(); ++i) {
        UnitOp op = ops[i];
        if (op.microbatch >= 0 && !is_receive(op.kind)) {
            const ActivationKey key{op.stage, op.microbatch};
            if (is_move(op.kind)) op.source_slot = use(source_of(op));
            op.slot = use(key);
            if (is_move(op.kind) && last[source_of(op)] == i) free_slots.push_back(op.source_slot);
            if (last[key] == i) free_slots.push_back(op.slot);
        }
        program.ops.push_back(op);
    }
    return program;
}

Program lower(const std::vector<Action>& actions, const LoweringOptions& options) {
    Ops ops = expand_units(actions, options);
    ops = insert_recompute(ops, options);
    ops = insert_gathers(ops, options);
    ops = insert_reductions(ops, options);
    ops = hoist_gathers(ops);
    ops = insert_sums(ops, options);
    ops = insert_table_exchange(ops, options);
    Program program = assign_slots(ops);
    program.recompute = options.recompute;
    program.forward_only = options.forward_only;
    return program;
}

std::string describe(const UnitOp& op) {
    std::string text = fmt::format("{} of stage {}", row_of(op.kind).name, op.stage);
    if (op.unit >= 0) text += fmt::format(" unit {}", op.unit);
    if (op.set > 0) text += fmt::format(" set {}", op.set);
    if (op.microbatch >= 0) text += fmt::format(" microbatch {}", op.microbatch);
    return text;
}

bool makes_gradients(UnitOpKind kind) { return has(kind, kMakesGradients); }
bool is_send(UnitOpKind kind) { return has(kind, kSends); }
bool is_receive(UnitOpKind kind) { return has(kind, kReceives); }
bool is_take(UnitOpKind kind) { return has(kind, kTakes); }
bool is_move(UnitOpKind kind) { return has(kind, kMoves); }
bool affects_later_microbatches(UnitOpKind kind) { return !has(kind, kLeavesNothing); }

int source_stage(const UnitOp& op) {
    const bool activation = op.kind == UnitOpKind::TakeActivation || op.kind == UnitOpKind::MoveActivation;
    return activation ? op.stage - 1 : op.stage + 1;
}

}  // namespace argosy::parallel
