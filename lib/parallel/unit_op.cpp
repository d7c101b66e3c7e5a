#include "parallel/unit_op.h"

#include <fmt/format.h>

namespace argosy::parallel {
namespace {

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
        case UnitOpKind::SendGradient:
            return "SendGradient";
        case UnitOpKind::ReceiveGradient:
            return "ReceiveGradient";
    }
    return "?";
}

}  // namespace

std::string describe(const UnitOp& op) {
    std::string text = fmt::format("{} of stage {}", kind_name(op.kind), op.stage);
    if (op.unit >= 0) text += fmt::format(" unit {}", op.unit);
    if (op.microbatch >= 0) text += fmt::format(" microbatch {}", op.microbatch);
    return text;
}

bool makes_gradients(UnitOpKind kind) {
    return kind == UnitOpKind::BackwardWeight || kind == UnitOpKind::Loss;
}

}  // namespace argosy::parallel
