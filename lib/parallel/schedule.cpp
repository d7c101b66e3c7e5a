#include "parallel/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace argosy::parallel {
namespace {

/// GPipe: all forwards, then all backwards. Simple, but all microbatches are in flight at once.
std::vector<Action> gpipe(const ScheduleShape& shape, int rank) {
    std::vector<Action> actions;
    for (int i = 0; i < shape.num_microbatches; ++i) actions.push_back({ActionKind::Forward, rank, i});
    for (int i = 0; i < shape.num_microbatches; ++i) actions.push_back({ActionKind::Backward, rank, i});
    return actions;
}

/// 1F1B: enough forwards to fill the later stages, then one forward for each backward. Rank r has at most
/// num_stages - r microbatches in flight, however many the step has.
std::vector<Action> one_forward_one_backward(const ScheduleShape& shape, int rank) {
    std::vector<Action> actions;
    const int ahead = std::min(shape.num_stages - 1 - rank, shape.num_microbatches);
    int forward = 0;
    while (forward < ahead) actions.push_back({ActionKind::Forward, rank, forward++});
    for (int backward = 0; backward < shape.num_microbatches; ++backward) {
        if (forward < shape.num_microbatches) actions.push_back({ActionKind::Forward, rank, forward++});
        actions.push_back({ActionKind::Backward, rank, backward});
    }
    return actions;
}

struct Schedule {
    const char* name;
    std::vector<Action> (*make)(const ScheduleShape&, int rank);
};

constexpr Schedule kSchedules[] = {
    {"1F1B", one_forward_one_backward},
    {"GPipe", gpipe},
};

}  // namespace

StageMap::StageMap(int num_stages, int num_ranks, StageOrder order)
    : num_stages_(num_stages), num_ranks_(num_ranks), order_(order) {
    ARGOSY_CHECK(order == StageOrder::Loop || num_stages == 2 * num_ranks, "{} stages on {} ranks in V",
                 num_stages, num_ranks);
}

int StageMap::rank_of(int stage) const {
    const int place = stage % num_ranks_;
    return order_ == StageOrder::V && stage >= num_ranks_ ? num_ranks_ - 1 - place : place;
}

std::vector<int> StageMap::stages_of(int rank) const {
    std::vector<int> stages;
    for (int stage = 0; stage < num_stages_; ++stage) {
        if (rank_of(stage) == rank) stages.push_back(stage);
    }
    return stages;
}

std::vector<std::string> schedule_names() {
    std::vector<std::string> names;
    for (const Schedule& each : kSchedules) names.emplace_back(each.name);
    return names;
}

std::vector<Action> schedule(const std::string& name, const ScheduleShape& shape, int rank) {
    const auto found =
        std::ranges::find_if(kSchedules, [&](const Schedule& each) { return each.name == name; });
    if (found == std::end(kSchedules)) {
        throw UserError("parallelism.pipeline_parallel_schedule = \"{}\" is unknown; there are {}", name,
                        fmt::join(schedule_names(), ", "));
    }
    if (shape.num_stages != shape.num_ranks) {
        throw UserError("the {} schedule runs one stage on each rank, not {} stages on {} ranks", name,
                        shape.num_stages, shape.num_ranks);
    }
    return found->make(shape, rank);
}

std::vector<Action> with_transfers(const std::vector<Action>& actions, int num_stages) {
    std::vector<Action> result;
    for (const Action& action : actions) {
        const bool forward = action.kind == ActionKind::Forward;
        const bool backward = action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardInput;
        const bool first = action.stage == 0, last = action.stage == num_stages - 1;
        const auto transfer = [&](ActionKind kind) {
            result.push_back({kind, action.stage, action.microbatch});
        };
        if (forward && !first) transfer(ActionKind::ReceiveActivation);
        if (backward && !last) transfer(ActionKind::ReceiveGradient);
        result.push_back(action);
        if (forward && !last) transfer(ActionKind::SendActivation);
        if (backward && !first) transfer(ActionKind::SendGradient);
    }
    return result;
}

}  // namespace argosy::parallel
