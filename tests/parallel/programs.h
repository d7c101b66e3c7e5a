// Programs of all ranks for tests, and a short way to write them down.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "parallel/lowering.h"
#include "parallel/transfers.h"

namespace argosy::parallel {

struct ProgramCase {
    std::string schedule = "1F1B";
    ScheduleShape shape;
    LoweringOptions options;
};

inline int num_units(const StageUnits& units) { return units.num_layers + units.has_head; }

/// Returns the stages with one set in each unit.
inline std::vector<StageUnits> with_one_set(std::vector<StageUnits> stages) {
    for (StageUnits& units : stages) units.sets.assign(num_units(units), {UnitSet()});
    return stages;
}

/// `layers[s]` blocks on stage s, the embedding before them on the first, the head on the last; each unit is
/// one set.
inline std::vector<StageUnits> stages_of(const std::vector<int>& layers) {
    std::vector<StageUnits> stages;
    for (const int count : layers) stages.push_back({.num_layers = count});
    stages.front().has_embedding = true;
    ++stages.front().num_layers;
    stages.back().has_head = true;
    return with_one_set(std::move(stages));
}

/// Returns the stages with a second set in every block.
inline std::vector<StageUnits> with_two_sets(std::vector<StageUnits> stages) {
    for (StageUnits& units : stages) {
        for (int unit = units.has_embedding; unit < units.num_layers; ++unit) units.sets[unit].resize(2);
    }
    return stages;
}

/// Returns the stages with this fact of every set.
inline std::vector<StageUnits> with(bool UnitSet::*fact, std::vector<StageUnits> stages, bool holds = true) {
    for (StageUnits& units : stages) {
        for (auto& unit : units.sets) {
            for (UnitSet& set : unit) set.*fact = holds;
        }
    }
    return stages;
}
/// With weights that are sharded over several ranks, or gradients to sum over replicas.
inline std::vector<StageUnits> with_shards(const std::vector<StageUnits>& stages, bool sharded = true) {
    return with(&UnitSet::sharded, stages, sharded);
}
inline std::vector<StageUnits> with_sums(const std::vector<StageUnits>& stages) {
    return with(&UnitSet::summed, stages);
}

/// Returns the stages with a tied table that the first and the last stage hold. REQUIRES: they are on two
/// ranks.
inline std::vector<StageUnits> with_table(std::vector<StageUnits> stages) {
    stages.front().tied_unit = 0;
    stages.back().tied_unit = stages.back().num_layers;
    return stages;
}

/// The actions of all ranks with their transfers.
inline RankActions transferred(const std::string& name, const ScheduleShape& shape) {
    return with_transfers(schedule(name, shape), shape.stages());
}

inline std::vector<Program> programs_of(const ProgramCase& wanted) {
    std::vector<Program> programs;
    for (const auto& actions : transferred(wanted.schedule, wanted.shape)) {
        programs.push_back(lower(actions, wanted.options));
    }
    return programs;
}

/// The shape of a schedule with its order of stages.
inline ScheduleShape shape_of(const std::string& name, int stages_per_rank, int num_ranks,
                              int num_microbatches) {
    return {stages_per_rank * num_ranks, num_ranks, num_microbatches, stage_order(name)};
}

/// Whether the schedule takes these sizes.
inline bool takes(const std::string& name, int stages_per_rank, int num_ranks, int num_microbatches) {
    if (name == "1F1B" || name == "GPipe") return stages_per_rank == 1;
    if (name == "ZBVZeroBubble") return stages_per_rank == 2;
    return num_microbatches % num_ranks == 0;
}

/// Whether operations of this kind are about the gradient of a tied table on two ranks.
inline bool is_of_table(UnitOpKind kind) {
    return kind == UnitOpKind::SendTable || kind == UnitOpKind::ReceiveTable || kind == UnitOpKind::AddTable;
}

inline const char* letters(UnitOpKind kind) {
    switch (kind) {
        case UnitOpKind::Gather:
            return "G";
        case UnitOpKind::Release:
            return "X";
        case UnitOpKind::Forward:
            return "F";
        case UnitOpKind::Loss:
            return "L";
        case UnitOpKind::LossInput:
            return "I";
        case UnitOpKind::ForwardLoss:
            return "f";
        case UnitOpKind::Recompute:
            return "C";
        case UnitOpKind::BackwardInput:
            return "B";
        case UnitOpKind::BackwardWeight:
            return "W";
        case UnitOpKind::Reduce:
            return "R";
        case UnitOpKind::FinishReduce:
            return "D";
        case UnitOpKind::Sum:
            return "S";
        case UnitOpKind::FinishSum:
            return "E";
        case UnitOpKind::SendTable:
            return "st";
        case UnitOpKind::ReceiveTable:
            return "rt";
        case UnitOpKind::AddTable:
            return "at";
        case UnitOpKind::SendActivation:
            return "sa";
        case UnitOpKind::ReceiveActivation:
            return "ra";
        case UnitOpKind::TakeActivation:
            return "ta";
        case UnitOpKind::SendGradient:
            return "sg";
        case UnitOpKind::ReceiveGradient:
            return "rg";
        case UnitOpKind::TakeGradient:
            return "tg";
        case UnitOpKind::MoveActivation:
            return "ma";
        case UnitOpKind::MoveGradient:
            return "mg";
    }
    return "?";
}

/// "F1.0" is the forward of unit 1 for microbatch 0, "G2" the gather of unit 2, "G2'" that of its second set,
/// "sa.3" a transfer of microbatch 3, ta and tg the ends of receives, ma and mg moves, D the end of a
/// reduction, E that of a sum over ranks, st, rt and at the exchange of a tied table.
inline std::string written(const std::vector<UnitOp>& ops) {
    std::string text;
    for (const UnitOp& op : ops) {
        if (!text.empty()) text += ' ';
        text += letters(op.kind);
        if (op.unit >= 0) text += fmt::format("{}{}", op.unit, op.set > 0 ? "'" : "");
        if (op.microbatch >= 0) text += fmt::format(".{}", op.microbatch);
    }
    return text;
}

}  // namespace argosy::parallel
