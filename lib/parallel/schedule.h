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

/// The order in which the ranks take the stages. Loop: from the first rank to the last one, again and again.
/// V: from the first rank to the last one and back, so that the first rank has the first and the last stage.
enum class StageOrder { Loop, V };

/// Which rank runs a stage, and which of that rank's stages it is.
class StageMap {
  public:
    /// REQUIRES: V has two stages on each rank.
    explicit StageMap(int num_stages = 1, int num_ranks = 1, StageOrder order = StageOrder::Loop);

    int num_stages() const { return num_stages_; }
    int num_ranks() const { return num_ranks_; }
    int rank_of(int stage) const;
    /// The number of the stage among the stages of its rank, from 0.
    int local_index(int stage) const { return stage / num_ranks_; }
    std::vector<int> stages_of(int rank) const;  // ascending

  private:
    int num_stages_, num_ranks_;
    StageOrder order_;
};

struct ScheduleShape {
    int num_stages = 1;
    int num_ranks = 1;
    int num_microbatches = 1;
    StageOrder order = StageOrder::Loop;

    StageMap stages() const { return StageMap(num_stages, num_ranks, order); }
};

/// The compute actions of `rank`, in order. Throws UserError for an unknown name or for a shape that the
/// schedule does not support.
std::vector<Action> schedule(const std::string& name, const ScheduleShape& shape, int rank);

/// Adds the transfers between stages: each receive directly before the action that needs its data, each send
/// directly after the action that makes its data.
std::vector<Action> with_transfers(const std::vector<Action>& actions, int num_stages);

std::vector<std::string> schedule_names();

}  // namespace argosy::parallel
