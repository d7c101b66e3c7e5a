// Compares measured collectives with what a plan of the job assumes of them.
#include <fmt/format.h>

#include <algorithm>

#include "bench/collective.h"
#include "preflight/diagnose.h"

namespace argosy::preflight {
namespace {

/// The measured operation, as a rank of a group submits it.
comm::RecordedOp recorded(const StepOperation& operation) {
    const auto size = static_cast<int>(operation.groups.front().size());
    const auto bytes = static_cast<int64_t>(operation.kind.bytes);
    comm::RecordedOp op{.group = operation.axes,
                        .size = size,
                        .kind = operation.op,
                        .type = operation.kind.type,
                        .num_elements = bytes / size_bytes(operation.kind.type),
                        .peer = size - 1};
    if (op.kind == comm::OpKind::AllToAll) op.parts = {bytes / size * (size - 1), bytes / size * (size - 1)};
    return op;
}

}  // namespace

void add_planned(const PlannedLinks& links, std::vector<OperationSpeed>& operations) {
    for (OperationSpeed& speed : operations) {
        const StepOperation& operation = speed.operation;
        const comm::RecordedOp op = recorded(operation);
        for (const std::vector<int>& ranks : operation.groups)
            speed.planned.push_back(operation.bus_bytes() / links.seconds(std::span(&op, 1), ranks));
    }
}

std::vector<Finding> compare_with_plan(const Speeds& speeds, const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const OperationSpeed& speed : speeds.operations) {
        if (speed.planned.empty() || speed.operation.kind.bytes < kMinBytesOfLinks) continue;
        std::vector<int> slow;
        for (size_t i = 0; i < speed.planned.size(); ++i) {
            const std::vector<int>& ranks = speed.operation.groups[i];
            if (speed.share_of_plan(i) < kMinShareOfPlan) slow.insert(slow.end(), ranks.begin(), ranks.end());
        }
        if (slow.empty()) continue;
        std::ranges::sort(slow);
        const size_t slowest = speed.furthest_below_plan();
        findings.push_back(
            {Severity::Warn, std::string(kPlanOf) + speed.operation.name(), describe_ranks(slow, cluster),
             fmt::format("bus bandwidth {:.3g} GB/s is {:.0f} % of the {:.3g} GB/s that a plan assumes, "
                         "below {:.0f} %: a step takes longer than planned",
                         speed.bus_bandwidths[slowest] / 1e9, 100 * speed.share_of_plan(slowest),
                         speed.planned[slowest] / 1e9, 100 * kMinShareOfPlan),
             "if no other finding says why, plan with this cluster's links: measure them with nccl-bench "
             "--json and give its files to pretrain --search --links, and to preflight --links, which then "
             "compares with them"});
    }
    return findings;
}

}  // namespace argosy::preflight
