// Pipeline schedules as data: a schedule is a pure function from sizes to the list of actions of a rank, in
// order. Gradient accumulation is the schedule of one stage with several microbatches.
#pragma once

#include <string>
#include <vector>

namespace argosy::parallel {

enum class ActionKind {
    Forward,
    Backward,  // BackwardInput and BackwardWeight
    BackwardInput,
    BackwardWeight,
    SendActivation,     // sends to the next stage
    ReceiveActivation,  // receives from the stage before
    SendGradient,       // sends to the stage before
    ReceiveGradient,    // receives from the next stage
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

/// The compute actions of `rank`, in order. Throws UserError for an unknown name or for a shape that the
/// schedule does not support.
std::vector<Action> schedule(const std::string& name, const ScheduleShape& shape, int rank);

/// Adds the transfers between stages: each receive directly before the action that needs its data, each send
/// directly after the action that makes its data.
std::vector<Action> with_transfers(const std::vector<Action>& actions, int num_stages);

std::vector<std::string> schedule_names();

}  // namespace argosy::parallel
