#include "parallel/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"

namespace argosy::parallel {
namespace {

using enum ActionKind;

/// GPipe: all forwards, then all backwards. Simple, but all microbatches are in flight at once.
RankActions gpipe(const ScheduleShape& shape) {
    RankActions ranks(shape.num_ranks);
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        for (int i = 0; i < shape.num_microbatches; ++i) ranks[rank].push_back({Forward, rank, i});
        for (int i = 0; i < shape.num_microbatches; ++i) ranks[rank].push_back({Backward, rank, i});
    }
    return ranks;
}

/// 1F1B: enough forwards to fill the later stages, then one forward for each backward. Rank r has at
/// most num_ranks - r microbatches in flight if it has one stage, however many the step has. If it has
/// several, groups of num_ranks microbatches go through its stages one after the other: the pipeline
/// fills and drains in units of a stage, which is shorter by the number of stages on a rank.
RankActions one_forward_one_backward(const ScheduleShape& shape) {
    const int num_ranks = shape.num_ranks, per_rank = shape.num_stages / num_ranks;
    const int total = per_rank * shape.num_microbatches;
    RankActions ranks(num_ranks);
    for (int rank = 0; rank < num_ranks; ++rank) {
        const auto add = [&](ActionKind kind, int i) {
            const int place = i / num_ranks % per_rank;
            const int stage = (kind == Forward ? place : per_rank - 1 - place) * num_ranks + rank;
            ranks[rank].push_back({kind, stage, i / (num_ranks * per_rank) * num_ranks + i % num_ranks});
        };
        const int later = num_ranks - 1 - rank;
        const int ahead = std::min(total, per_rank == 1 ? later : (per_rank - 1) * num_ranks + 2 * later);
        int forward = 0;
        while (forward < ahead) add(Forward, forward++);
        for (int backward = 0; backward < total; ++backward) {
            if (forward < total) add(Forward, forward++);
            add(Backward, backward);
        }
    }
    return ranks;
}

// Zero-bubble schedules split the backward pass: only its input's half lies on the path from stage to stage,
// so the weights' halves can fill the time in which a rank would wait for another one (Qi et al., "Zero
// Bubble Pipeline Parallelism", 2023; with the stages in V, "Pipeline Parallelism with Controllable Memory",
// 2024). A schedule is the order of the forwards and of the inputs' halves on each rank; fill_bubbles()
// places the weights' halves. If there are at least as many microbatches as ranks, each rank then waits for
// num_ranks - 1 units.

/// Runs the orders, with one unit of time for each action. A rank runs its oldest weights' half if the next
/// action of its order needs something that another rank has not computed yet, or if `max_in_flight` pairs of
/// stage and microbatch are in flight, from the forward to the weights' half.
RankActions fill_bubbles(const RankActions& orders, const std::vector<int>& max_in_flight,
                         const ScheduleShape& shape) {
    const auto num_ranks = static_cast<int>(orders.size());
    constexpr int kNever = std::numeric_limits<int>::max();
    const std::vector<int> never(static_cast<size_t>(shape.num_stages) * shape.num_microbatches, kNever);
    std::vector<int> forward_end = never, input_end = never;  // units of time, by stage and microbatch
    const auto index = [&](int stage, int microbatch) { return stage * shape.num_microbatches + microbatch; };
    std::vector<size_t> next(num_ranks), num_weights(num_ranks);
    RankActions inputs(num_ranks), result(num_ranks);

    // Whether the data that the action needs are there. A rank sees its own results at once.
    const auto is_ready = [&](const Action& action, int time) {
        const bool forward = action.kind == Forward;
        const int from = action.stage + (forward ? -1 : 1);
        if (from < 0 || from == shape.num_stages) return true;
        return (forward ? forward_end : input_end)[index(from, action.microbatch)] <= time;
    };
    const auto run = [&](int rank, int time) {
        const size_t in_flight = next[rank] - inputs[rank].size() - num_weights[rank];
        if (next[rank] < orders[rank].size()) {
            const Action& action = orders[rank][next[rank]];
            const bool forward = action.kind == Forward;
            const bool room = !forward || std::cmp_less(in_flight, max_in_flight[rank]);
            if (room && is_ready(action, time)) {
                (forward ? forward_end : input_end)[index(action.stage, action.microbatch)] = time + 1;
                if (!forward) inputs[rank].push_back(action);
                result[rank].push_back(action);
                ++next[rank];
                return;
            }
        }
        if (num_weights[rank] == inputs[rank].size()) return;
        const Action& oldest = inputs[rank][num_weights[rank]++];
        result[rank].push_back({BackwardWeight, oldest.stage, oldest.microbatch});
    };
    const auto is_done = [&](int rank) {
        return next[rank] == orders[rank].size() && num_weights[rank] == inputs[rank].size();
    };
    for (int time = 0, done = 0; done < num_ranks; ++time) {
        done = 0;
        for (int rank = 0; rank < num_ranks; ++rank) {
            run(rank, time);
            done += is_done(rank);
        }
    }
    return result;
}

/// The order of Interleaved1F1B. Rank r holds at most r pairs more than there, and no more than the first
/// rank does.
RankActions interleaved_zero_bubble(const ScheduleShape& shape) {
    RankActions orders = one_forward_one_backward(shape);
    std::vector<int> max_in_flight;
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        int in_flight = 0, max = 0;
        for (Action& action : orders[rank]) {
            if (action.kind == Backward) action.kind = BackwardInput;
            max = std::max(max, in_flight += action.kind == Forward ? 1 : -1);
        }
        max_in_flight.push_back(max + rank);
    }
    return fill_bubbles(orders, max_in_flight, shape);
}

/// Rank r has stage r on the way to the last rank and stage 2 * num_ranks - 1 - r on the way back. The rank
/// holds at most 2 * num_ranks halves of its layers' activations, as much as the first rank of 1F1B.
RankActions v_zero_bubble(const ScheduleShape& shape) {
    RankActions orders(shape.num_ranks);
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        const int there = rank, back = 2 * shape.num_ranks - 1 - rank, later = shape.num_ranks - rank;
        std::map<std::pair<ActionKind, int>, int> counts;  // by kind and stage
        const auto add = [&](ActionKind kind, int stage) {
            int& count = counts[{kind, stage}];
            const int limit = kind == Forward ? shape.num_microbatches : counts[{Forward, stage}];
            if (count < limit) orders[rank].push_back({kind, stage, count++});
        };
        // 1. forwards on the way there, until the first microbatch comes back
        for (int i = 0; i < 2 * later - 1; ++i) add(Forward, there);
        // 2. forwards both ways, until the first gradient comes
        for (int i = 0; i < rank; ++i) {
            add(Forward, back);
            add(Forward, there);
        }
        // 3. forwards and gradients on the way back, until the first gradient comes to the other stage
        for (int i = 0; i < later; ++i) {
            add(Forward, back);
            add(BackwardInput, back);
        }
        // 4. all of both stages in turn
        while (std::ssize(orders[rank]) < 4 * shape.num_microbatches) {
            add(Forward, there);
            add(BackwardInput, there);
            add(Forward, back);
            add(BackwardInput, back);
        }
    }
    return fill_bubbles(orders, std::vector<int>(shape.num_ranks, 2 * shape.num_ranks), shape);
}

struct Schedule {
    const char* name;
    StageOrder order;
    int default_stages_per_rank;
    int min_stages_per_rank, max_stages_per_rank;
    bool whole_groups;  // the number of microbatches is a multiple of the ranks
    RankActions (*make)(const ScheduleShape&);
};

constexpr int kAny = 1 << 20;
// Left out: PyTorch's LoopedBFS (all microbatches on one stage, then on the rank's next stage). Channels that
// hold one message deadlock from 3 * num_ranks - 1 microbatches on, and for fewer microbatches the schedule
// is at best as fast as Interleaved1F1B. DualPipeV hides the exchange of experts' tokens, which dense models
// lack; without that its ranks wait for 2 (num_ranks - 1) units (DeepSeek-V3, 2024), ZBVZeroBubble's for
// half.
constexpr Schedule kSchedules[] = {
    {"1F1B", StageOrder::Loop, 1, 1, 1, false, one_forward_one_backward},
    {"GPipe", StageOrder::Loop, 1, 1, 1, false, gpipe},
    {"Interleaved1F1B", StageOrder::Loop, 2, 1, kAny, true, one_forward_one_backward},
    {"InterleavedZeroBubble", StageOrder::Loop, 2, 1, kAny, true, interleaved_zero_bubble},
    {"ZBVZeroBubble", StageOrder::V, 2, 2, 2, false, v_zero_bubble},
};

const Schedule& schedule_called(const std::string& name) {
    const auto found =
        std::ranges::find_if(kSchedules, [&](const Schedule& each) { return each.name == name; });
    if (found == std::end(kSchedules)) {
        throw UserError("parallelism.pipeline_parallel_schedule = \"{}\" is unknown; there are {}", name,
                        fmt::join(schedule_names(), ", "));
    }
    return *found;
}

}  // namespace

StageMap::StageMap(int num_stages, int num_ranks, StageOrder order)
    : num_stages_(num_stages), num_ranks_(num_ranks), order_(order) {
    if (order == StageOrder::Loop || num_stages == 2 * num_ranks) return;
    throw UserError(
        "the schedule has two stages on each rank, but there are {} stages on {} ranks; give "
        "parallelism.pipeline_parallel_layers_per_stage {} numbers, or none",
        num_stages, num_ranks, 2 * num_ranks);
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

StageOrder stage_order(const std::string& name) { return schedule_called(name).order; }

int default_stages_per_rank(const std::string& name) { return schedule_called(name).default_stages_per_rank; }

RankActions schedule(const std::string& name, const ScheduleShape& shape) {
    const Schedule& found = schedule_called(name);
    ARGOSY_CHECK(shape.order == found.order, "{} with its stages in another order", name);
    const int per_rank = shape.num_stages / shape.num_ranks, min = found.min_stages_per_rank;
    if (shape.num_stages % shape.num_ranks != 0 || per_rank < min || per_rank > found.max_stages_per_rank) {
        const std::string wanted = found.max_stages_per_rank == kAny ? "the same number of stages"
                                   : min == 1                        ? "one stage"
                                                                     : "two stages";
        throw UserError(
            "parallelism.pipeline_parallel_schedule {} runs {} on each rank, not {} stages on {} ranks; "
            "change the schedule or the number of stages (parallelism.pipeline_parallel_layers_per_stage)",
            name, wanted, shape.num_stages, shape.num_ranks);
    }
    if (found.whole_groups && shape.num_microbatches % shape.num_ranks != 0) {
        throw UserError(
            "parallelism.pipeline_parallel_schedule {} needs a multiple of {} microbatches on {} ranks, but "
            "a step has {}; change training.global_batch_size, training.local_batch_size or "
            "parallelism.pipeline_parallel_microbatch_size",
            name, shape.num_ranks, shape.num_ranks, shape.num_microbatches);
    }
    return found.make(shape);
}

}  // namespace argosy::parallel
