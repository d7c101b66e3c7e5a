#include "train/stop_agreement.h"

#include <ATen/ops/full.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/program.h"

namespace argosy::train {

std::unique_ptr<comm::Communicator> control_group(const comm::Communicator& world) {
    std::vector<int> ranks(world.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return world.subgroup(ranks, "control");
}

ExitCode stopped_by_signal(const Position& position, const Position& start, int64_t num_steps, bool saved) {
    const int64_t step = position.step;
    if (!saved) {
        throw JobError(
            "stopped by a signal after step {} of {}; nothing is saved without checkpoint.enable = true, or "
            "with load_only",
            step, num_steps);
    }
    const std::string when =
        step == start.step
            ? fmt::format("before step {} of {}, the first of this start; there is nothing new to save",
                          step + 1, num_steps)
            : fmt::format("after step {} of {}, which is saved", step, num_steps);
    spdlog::info("stopped by a signal {}: exit {}, to be started again", when,
                 static_cast<int>(ExitCode::Requeue));
    return ExitCode::Requeue;
}

StopReason StopAgreement::agreed(StopReason own) {
    if (stop_requested()) own = StopReason::Signal;
    const at::Tensor reason = at::full({}, static_cast<int64_t>(own), at::kLong);
    control_.run(
        {.kind = comm::OpKind::AllReduce, .out = reason, .in = reason, .reduction = comm::Reduction::Max});
    return static_cast<StopReason>(reason.item<int64_t>());
}

}  // namespace argosy::train
