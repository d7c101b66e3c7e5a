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
        for (const int unit : options.stages[stage].summed_units) unsummed_.insert({stage, unit});
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
    const Unit unit{op.stage, op.unit};
    switch (op.kind) {
        case UnitOpKind::Gather:
            return gather(unit);
        case UnitOpKind::Release:
            return release(unit);
        case UnitOpKind::Reduce:
            return reduce(unit);
        case UnitOpKind::FinishReduce:
            return finish_reduce(unit);
        case UnitOpKind::Sum:
            return sum(unit);
        case UnitOpKind::FinishSum:
            return finish_sum(unit);
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
    const Unit unit{op.stage, op.unit};
    if (open_.erase({op.kind, op.stage, op.unit, op.microbatch}) == 0) {
        return "it ran before, or is not this rank's to run";
    }
    for (const UnitOp& needed : prerequisites(op, options_.stages)) {
        if (open_.contains({needed.kind, needed.stage, needed.unit, needed.microbatch})) {
            return "it needs the " + describe(needed) + " first";
        }
    }
    if (options_.sharded && needs_weights(op, options_)) {
        const auto weights = gathered_.find(unit);
        if (weights == gathered_.end()) return "its weights are not gathered";
        weights->second = true;
    }
    if (makes_gradients(op.kind)) unreduced_.insert(unit);
    return "";
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

std::string RankLedger::gather(const Unit& unit) {
    if (!options_.sharded) return "weights are not sharded";
    if (!gathered_.insert({unit, false}).second) return "the weights are gathered already";
    max_gathered_ = std::max(max_gathered_, static_cast<int>(gathered_.size()));
    return "";
}

std::string RankLedger::release(const Unit& unit) {
    const auto weights = gathered_.find(unit);
    if (weights == gathered_.end()) return "the weights are not gathered";
    if (!weights->second) return "the weights were gathered for nothing";
    gathered_.erase(weights);
    return "";
}

std::string RankLedger::reduce(const Unit& unit) {
    if (!options_.sharded) return "gradients are not sharded";
    if (reducing_) return fmt::format("the reduction of unit {} is not finished", reducing_->second);
    if (unreduced_.erase(unit) == 0) return "there is nothing to reduce";
    reducing_ = unit;
    return "";
}

std::string RankLedger::finish_reduce(const Unit& unit) {
    if (reducing_ != unit) return "no such reduction is under way";
    reducing_.reset();
    return "";
}

bool RankLedger::has_all_gradients(const Unit& unit) const {
    const auto& [stage, number] = unit;
    for (const UnitOpKind kind : {UnitOpKind::BackwardWeight, UnitOpKind::Loss}) {
        const auto next = open_.lower_bound({kind, stage, number, 0});
        if (next != open_.end() && *next < Work{kind, stage, number + 1, 0}) return false;
    }
    return !options_.sharded || (!unreduced_.contains(unit) && reducing_ != unit);
}

std::string RankLedger::sum(const Unit& unit) {
    if (!unsummed_.contains(unit)) return "there is nothing to sum over ranks, or it was summed before";
    if (!has_all_gradients(unit)) return "its gradients are not complete";
    // A tied table is the parameter of the embedding and of the head.
    const bool embedding = unit == Unit{0, 0};
    const Unit head{static_cast<int>(options_.stages.size()) - 1, options_.stages.back().num_layers};
    if (embedding && !has_all_gradients(head)) {
        return "the head's gradients are not complete";
    }
    unsummed_.erase(unit);
    summing_.insert(unit);
    return "";
}

std::string RankLedger::finish_sum(const Unit& unit) {
    return summing_.erase(unit) == 0 ? "no such sum is under way" : "";
}

std::string RankLedger::exchange_table(const UnitOp& op) {
    const Unit unit{op.stage, op.unit};
    if (open_.erase({op.kind, op.stage, op.unit, -1}) == 0)
        return "it ran before, or is not this rank's to run";
    if (op.kind == UnitOpKind::SendTable) {
        if (!has_all_gradients(unit)) return "its gradients are not complete";
        if (unsummed_.contains(unit) || summing_.contains(unit)) return "its gradients are not summed";
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
        return fmt::format("the weights of unit {} stay gathered", gathered_.begin()->first.second);
    }
    if (options_.sharded && !unreduced_.empty()) {
        return fmt::format("the gradients of unit {} stay unreduced", unreduced_.begin()->second);
    }
    if (reducing_) return fmt::format("the reduction of unit {} is never finished", reducing_->second);
    if (!unsummed_.empty()) {
        return fmt::format("the gradients of unit {} stay without other ranks'", unsummed_.begin()->second);
    }
    if (!summing_.empty()) {
        return fmt::format("the sum of unit {} is never finished", summing_.begin()->second);
    }
    return "";
}

}  // namespace argosy::parallel
