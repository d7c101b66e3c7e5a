#include "parallel/rank_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace argosy::parallel {
namespace {

/// The operations that must have run before `op`. The list may name operations that the stage does not have
/// (the Loss of a middle stage, a Recompute where nothing was dropped); the caller ignores these.
std::vector<UnitOp> prerequisites(const UnitOp& op, const std::vector<StageUnits>& stages) {
    const int num_layers = stages[op.stage].num_layers;
    const auto with = [&](UnitOpKind kind, int unit) { return UnitOp{kind, op.stage, unit, op.microbatch}; };
    const auto of_source = [&](UnitOpKind kind, int unit) {
        return UnitOp{kind, source_stage(op), unit, op.microbatch};
    };
    const int units_before = op.stage > 0 ? stages[op.stage - 1].num_layers : 0;
    const UnitOp activation = with(UnitOpKind::TakeActivation, -1);
    const UnitOp gradient = with(UnitOpKind::TakeGradient, -1);
    const UnitOp moved_activation = with(UnitOpKind::MoveActivation, -1);
    const UnitOp moved_gradient = with(UnitOpKind::MoveGradient, -1);
    switch (op.kind) {
        case UnitOpKind::TakeActivation:
            return {with(UnitOpKind::ReceiveActivation, -1)};
        case UnitOpKind::TakeGradient:
            return {with(UnitOpKind::ReceiveGradient, -1)};
        case UnitOpKind::MoveActivation:
            return {of_source(UnitOpKind::Forward, units_before - 1)};
        case UnitOpKind::MoveGradient:
            return {of_source(UnitOpKind::Loss, 0), of_source(UnitOpKind::LossInput, 0),
                    of_source(UnitOpKind::BackwardInput, 0)};
        case UnitOpKind::Forward:
        case UnitOpKind::Loss:
        case UnitOpKind::LossInput:
            return {activation, moved_activation, with(UnitOpKind::Forward, op.unit - 1)};
        case UnitOpKind::SendActivation:
            return {activation, with(UnitOpKind::Forward, num_layers - 1)};
        case UnitOpKind::Recompute:
            return {with(UnitOpKind::Forward, op.unit)};
        case UnitOpKind::BackwardInput:
            return {with(UnitOpKind::Forward, op.unit),
                    with(UnitOpKind::Recompute, op.unit),
                    gradient,
                    moved_gradient,
                    with(UnitOpKind::Loss, op.unit + 1),
                    with(UnitOpKind::LossInput, op.unit + 1),
                    with(UnitOpKind::BackwardInput, op.unit + 1)};
        case UnitOpKind::BackwardWeight:
            return {with(UnitOpKind::BackwardInput, op.unit), with(UnitOpKind::LossInput, op.unit)};
        case UnitOpKind::SendGradient:
            return {gradient, with(UnitOpKind::Loss, num_layers), with(UnitOpKind::LossInput, num_layers),
                    with(UnitOpKind::BackwardInput, 0)};
        default:
            return {};
    }
}

bool is_activation(const UnitOp& op) {
    return op.kind == UnitOpKind::ReceiveActivation || op.kind == UnitOpKind::TakeActivation;
}

}  // namespace

RankLedger::RankLedger(int rank, const Program& program, const ScheduleShape& shape,
                       const LoweringOptions& options)
    : options_(options), num_slots_(program.num_slots) {
    for (const UnitOp& op : program.ops) {
        const bool is_known = std::cmp_less(op.stage, options.stages.size());
        const bool split =
            op.kind == UnitOpKind::LossInput || (op.kind == UnitOpKind::BackwardWeight && is_known &&
                                                 op.unit == options.stages[op.stage].num_layers);
        if (split) splits_head_.insert(op.microbatch);
        if (op.microbatch >= 0 && !is_receive(op.kind)) ++num_to_come_[{op.stage, op.microbatch}];
        if (is_move(op.kind)) ++num_to_come_[{source_stage(op), op.microbatch}];
    }
    for (const int stage : shape.stages().stages_of(rank)) {
        for (int i = 0; i < shape.num_microbatches; ++i) expect(stage, i, shape);
        const auto& sets = options.stages[stage].sets;
        for (int unit = 0; unit < std::ssize(sets); ++unit) {
            for (int set = 0; set < std::ssize(sets[unit]); ++set) {
                if (sets[unit][set].summed) unsummed_.insert({{stage, unit}, set});
            }
        }
        const int tied = options.stages[stage].tied_unit;
        for (const UnitOpKind kind :
             {UnitOpKind::SendTable, UnitOpKind::ReceiveTable, UnitOpKind::AddTable}) {
            if (tied >= 0) open_.insert({kind, stage, tied, -1});
        }
    }
}

void RankLedger::expect(int stage, int microbatch, const ScheduleShape& shape) {
    const StageUnits& units = options_.stages[stage];
    const auto add = [&](UnitOpKind kind, int unit = -1) { open_.insert({kind, stage, unit, microbatch}); };
    for (int unit = 0; unit < units.num_layers; ++unit) {
        const bool embedding = unit == 0 && units.has_embedding;
        add(UnitOpKind::Forward, unit);
        add(UnitOpKind::BackwardInput, unit);
        add(UnitOpKind::BackwardWeight, unit);
        if (options_.recompute != model::RecomputeMode::None && !embedding) add(UnitOpKind::Recompute, unit);
    }
    const StageMap stages = shape.stages();
    const auto is_here = [&](int other) { return stages.rank_of(other) == stages.rank_of(stage); };
    if (units.has_head && splits_head_.contains(microbatch)) {
        add(UnitOpKind::LossInput, units.num_layers);
        add(UnitOpKind::BackwardWeight, units.num_layers);
    } else if (units.has_head) {
        add(UnitOpKind::Loss, units.num_layers);
    }
    if (stage > 0 && is_here(stage - 1)) {
        add(UnitOpKind::MoveActivation);
    } else if (stage > 0) {
        add(UnitOpKind::ReceiveActivation);
        add(UnitOpKind::TakeActivation);
        add(UnitOpKind::SendGradient);
    }
    if (stage + 1 < shape.num_stages && is_here(stage + 1)) {
        add(UnitOpKind::MoveGradient);
    } else if (stage + 1 < shape.num_stages) {
        add(UnitOpKind::SendActivation);
        add(UnitOpKind::ReceiveGradient);
        add(UnitOpKind::TakeGradient);
    }
}

std::string RankLedger::enter(const UnitOp& op) {
    const Set set{{op.stage, op.unit}, op.set};
    switch (op.kind) {
        case UnitOpKind::Gather:
            return gather(set);
        case UnitOpKind::Release:
            return release(set);
        case UnitOpKind::Reduce:
            return reduce(set);
        case UnitOpKind::FinishReduce:
            return finish_reduce(set);
        case UnitOpKind::Sum:
            return sum(set);
        case UnitOpKind::FinishSum:
            return finish_sum(set);
        case UnitOpKind::SendTable:
        case UnitOpKind::ReceiveTable:
        case UnitOpKind::AddTable:
            return exchange_table(op);
        default:
            std::string fault = enter_work(op);
            if (fault.empty() && is_receive(op.kind)) return receive(op);
            if (fault.empty() && is_take(op.kind)) fault = take(op);
            if (fault.empty() && is_move(op.kind)) {
                fault = use_slot(op.source_slot, {source_stage(op), op.microbatch});
            }
            return fault.empty() ? use_slot(op.slot, {op.stage, op.microbatch}) : fault;
    }
}

std::string RankLedger::enter_work(const UnitOp& op) {
    if (open_.erase({op.kind, op.stage, op.unit, op.microbatch}) == 0) {
        return "it ran before, or is not this rank's to run";
    }
    for (const UnitOp& needed : prerequisites(op, options_.stages)) {
        if (open_.contains({needed.kind, needed.stage, needed.unit, needed.microbatch})) {
            return "it needs the " + describe(needed) + " first";
        }
    }
    if (op.unit < 0) return "";  // a transfer
    for (const Set& set : sharded_sets({op.stage, op.unit})) {
        if (needs_weights(op, options_)) {
            const auto weights = gathered_.find(set);
            if (weights == gathered_.end()) return "its weights are not gathered";
            weights->second = true;
        }
        if (makes_gradients(op.kind)) unreduced_.insert(set);
    }
    return "";
}

const UnitSet* RankLedger::find(const Set& set) const {
    const auto sets = options_.stages[set.first.first].sets_of(set.first.second);
    return std::cmp_less(set.second, sets.size()) ? &sets[set.second] : nullptr;
}

std::vector<RankLedger::Set> RankLedger::sharded_sets(const Unit& unit) const {
    std::vector<Set> sharded;
    for (int number = 0; const UnitSet* set = find({unit, number}); ++number) {
        if (set->sharded) sharded.push_back({unit, number});
    }
    return sharded;
}

std::string RankLedger::use_slot(int slot, const Activations& own) {
    if (slot < 0 || slot >= num_slots_) return fmt::format("slot {} of {}", slot, num_slots_);
    const auto [holder, is_new] = slots_.insert({slot, own});
    if (holder->second != own) {
        return fmt::format("slot {} still holds stage {} microbatch {}", slot, holder->second.first,
                           holder->second.second);
    }
    if (is_new && slot_of_.contains(own)) {
        return fmt::format("its activations are in slot {}, not {}", slot_of_[own], slot);
    }
    slot_of_[own] = slot;
    max_in_flight_ = std::max(max_in_flight_, static_cast<int>(slots_.size()));
    if (--num_to_come_[own] == 0) slots_.erase(slot);
    return "";
}

std::string RankLedger::receive(const UnitOp& op) {
    if (op.slot != -1) return fmt::format("it takes slot {} before its message is there", op.slot);
    receiving_.insert({is_activation(op), op.stage, op.microbatch});
    return "";
}

std::string RankLedger::take(const UnitOp& op) {
    const bool is_under_way = receiving_.erase({is_activation(op), op.stage, op.microbatch}) > 0;
    return is_under_way ? "" : "no such receive is under way";
}

std::string RankLedger::gather(const Set& set) {
    const UnitSet* known = find(set);
    if (known == nullptr || !known->sharded) return "weights are not sharded";
    if (!gathered_.insert({set, false}).second) return "the weights are gathered already";
    std::set<Unit> units;
    for (const auto& [gathered, used] : gathered_) units.insert(gathered.first);
    max_gathered_ = std::max(max_gathered_, static_cast<int>(units.size()));
    return "";
}

std::string RankLedger::release(const Set& set) {
    const auto weights = gathered_.find(set);
    if (weights == gathered_.end()) return "the weights are not gathered";
    if (!weights->second) return "the weights were gathered for nothing";
    gathered_.erase(weights);
    return "";
}

std::string RankLedger::reduce(const Set& set) {
    const UnitSet* known = find(set);
    if (known == nullptr || !known->sharded) return "gradients are not sharded";
    for (const Set& other : reducing_) {
        if (other.first != set.first || other == set)
            return fmt::format("the reduction of unit {} is not finished", other.first.second);
    }
    if (unreduced_.erase(set) == 0) return "there is nothing to reduce";
    reducing_.insert(set);
    return "";
}

std::string RankLedger::finish_reduce(const Set& set) {
    return reducing_.erase(set) == 0 ? "no such reduction is under way" : "";
}

bool RankLedger::has_all_gradients(const Set& set) const {
    const auto& [stage, number] = set.first;
    for (const UnitOpKind kind : {UnitOpKind::BackwardWeight, UnitOpKind::Loss}) {
        const auto next = open_.lower_bound({kind, stage, number, 0});
        if (next != open_.end() && *next < Work{kind, stage, number + 1, 0}) return false;
    }
    return !unreduced_.contains(set) && !reducing_.contains(set);
}

std::string RankLedger::sum(const Set& set) {
    if (!unsummed_.contains(set)) return "there is nothing to sum over ranks, or it was summed before";
    if (!has_all_gradients(set)) return "its gradients are not complete";
    // A tied table is the parameter of the embedding and of the head.
    const bool embedding = set.first == Unit{0, 0};
    const Unit head{static_cast<int>(options_.stages.size()) - 1, options_.stages.back().num_layers};
    if (embedding && !has_all_gradients({head, 0})) {
        return "the head's gradients are not complete";
    }
    unsummed_.erase(set);
    summing_.insert(set);
    return "";
}

std::string RankLedger::finish_sum(const Set& set) {
    return summing_.erase(set) == 0 ? "no such sum is under way" : "";
}

std::string RankLedger::exchange_table(const UnitOp& op) {
    const Set set{{op.stage, op.unit}, 0};
    if (open_.erase({op.kind, op.stage, op.unit, -1}) == 0)
        return "it ran before, or is not this rank's to run";
    if (op.kind == UnitOpKind::SendTable) {
        if (!has_all_gradients(set)) return "its gradients are not complete";
        if (unsummed_.contains(set) || summing_.contains(set)) return "its gradients are not summed";
    } else if (op.kind == UnitOpKind::AddTable) {
        for (const UnitOpKind kind : {UnitOpKind::SendTable, UnitOpKind::ReceiveTable}) {
            if (open_.contains({kind, op.stage, op.unit, -1}))
                return "it needs the " + describe({kind, op.stage, op.unit, -1}) + " first";
        }
    }
    return "";
}

std::string RankLedger::close() const {
    if (!open_.empty()) {
        const auto& [kind, stage, unit, microbatch] = *open_.begin();
        return "there is no " + describe({kind, stage, unit, microbatch});
    }
    if (!gathered_.empty()) {
        return fmt::format("the weights of unit {} stay gathered", gathered_.begin()->first.first.second);
    }
    if (!unreduced_.empty()) {
        return fmt::format("the gradients of unit {} stay unreduced", unreduced_.begin()->first.second);
    }
    if (!reducing_.empty()) {
        return fmt::format("the reduction of unit {} is never finished", reducing_.begin()->first.second);
    }
    if (!unsummed_.empty()) {
        return fmt::format("the gradients of unit {} stay without other ranks'",
                           unsummed_.begin()->first.second);
    }
    if (!summing_.empty()) {
        return fmt::format("the sum of unit {} is never finished", summing_.begin()->first.second);
    }
    return "";
}

}  // namespace argosy::parallel
