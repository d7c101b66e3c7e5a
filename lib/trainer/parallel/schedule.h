// Pipeline schedules as data: a schedule is a pure function from sizes to the list of actions of each rank,
// in order. Gradient accumulation is the schedule of one stage with several microbatches.
// parallel/own_schedule.h reads one from a file, parallel/transfers.h adds the transfers between stages.
#pragma once

#include <string>
#include <vector>

namespace argosy::parallel {

enum class ActionKind {
    Forward,
    Backward,  // BackwardInput and BackwardWeight
    BackwardInput,
    BackwardWeight,
    SendActivation,     // starts to send to the next stage
    ReceiveActivation,  // starts to receive from the stage before
    TakeActivation,     // waits for the receive
    SendGradient,       // starts to send to the stage before
    ReceiveGradient,    // starts to receive from the next stage
    TakeGradient,
    MoveActivation,  // takes over from the stage before, which is on the same rank
    MoveGradient,    // takes over from the next stage, which is on the same rank
};

struct Action {
    ActionKind kind;
    int stage;
    int microbatch;
    bool operator==(const Action&) const = default;
};

/// The actions of each rank, in order.
using RankActions = std::vector<std::vector<Action>>;

/// The order in which the ranks take the stages. Loop: from the first rank to the last one, again and again.
/// V: from the first rank to the last one and back, so that the first rank has the first and the last stage.
enum class StageOrder { Loop, V };

/// Gives the rank that runs a stage, and the number of the stage among those of its rank.
class StageMap {
  public:
    /// Throws UserError if V would not have two stages on each rank.
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

std::vector<std::string> schedule_names();

/// How the schedule's ranks take the stages, and how many stages a rank has if the configuration does not
/// say. Throws UserError for an unknown name.
StageOrder stage_order(const std::string& name);
int default_stages_per_rank(const std::string& name);

/// The compute actions of all ranks. Throws UserError for an unknown name or for a shape that the schedule
/// does not support. REQUIRES: shape.order == stage_order(name).
RankActions schedule(const std::string& name, const ScheduleShape& shape);

}  // namespace argosy::parallel
