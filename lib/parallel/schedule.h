// Pipeline schedules as data: a schedule is a pure function from sizes to what a rank does, in order.
// Gradient accumulation is the schedule of one stage with several microbatches.
#pragma once

#include <string>
#include <vector>

namespace argosy::parallel {

enum class ActionKind {
    Forward,
    Backward,  // both halves
    BackwardInput,
    BackwardWeight,
    SendActivation,     // to the next stage
    ReceiveActivation,  // from the stage before
    SendGradient,       // to the stage before
    ReceiveGradient,    // from the next stage
};

struct Action {
    ActionKind kind;
    int stage;
    int microbatch;
    bool operator==(const Action&) const = default;
};

struct ScheduleShape {
    int num_stages = 1;
    int num_ranks = 1;  // stage s runs on rank s % num_ranks
    int num_microbatches = 1;
};

/// The compute actions of `rank`, in order. Throws UserError for an unknown name or a shape that the schedule
/// does not have.
std::vector<Action> schedule(const std::string& name, const ScheduleShape& shape, int rank);

/// Puts each stage's receives before, and its sends after, what needs and makes them.
std::vector<Action> with_transfers(const std::vector<Action>& actions, const ScheduleShape& shape);

std::vector<std::string> schedule_names();

}  // namespace argosy::parallel
