#include "parallel/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace argosy::parallel {
namespace {

struct Message {
    bool gradient;
    int to_stage, microbatch;
    int round;  // when it was made
    bool operator==(const Message& other) const {
        return std::tie(gradient, to_stage, microbatch) ==
               std::tie(other.gradient, other.to_stage, other.microbatch);
    }
};

using Computation = std::tuple<UnitOpKind, int, int, int>;  // kind, stage, unit, microbatch

bool is_computation(UnitOpKind kind) {
    return kind == UnitOpKind::Forward || kind == UnitOpKind::Loss || kind == UnitOpKind::BackwardInput ||
           kind == UnitOpKind::BackwardWeight;
}

class Simulator {
  public:
    Simulator(const std::vector<Program>& programs, const ScheduleShape& shape,
              const LoweringOptions& options)
        : programs_(programs),
          shape_(shape),
          options_(options),
          next_(programs.size(), 0),
          round_(programs.size(), 0) {}

    Simulation run() {
        bool moved = true;
        while (moved && fault_.empty()) {
            moved = false;
            for (size_t rank = 0; rank < programs_.size(); ++rank) {
                while (fault_.empty() && next_[rank] < programs_[rank].ops.size() &&
                       step(static_cast<int>(rank))) {
                    ++next_[rank];
                    moved = true;
                }
            }
        }
        if (fault_.empty()) check_end();
        Simulation result{fault_};
        for (const Program& program : programs_) result.most_in_flight.push_back(program.num_slots);
        result.num_rounds = *std::max_element(round_.begin(), round_.end());
        return result;
    }

  private:
    /// Runs the rank's next op; false when it has to wait.
    bool step(int rank) {
        const UnitOp& op = programs_[rank].ops[next_[rank]];
        if (op.stage % shape_.num_ranks != rank)
            return fail("rank {} runs an op of stage {}", rank, op.stage);
        switch (op.kind) {
            case UnitOpKind::SendActivation:
                return send(rank, {false, op.stage + 1, op.microbatch});
            case UnitOpKind::SendGradient:
                return send(rank, {true, op.stage - 1, op.microbatch});
            case UnitOpKind::ReceiveActivation:
                return receive(rank, op.stage - 1, {false, op.stage, op.microbatch});
            case UnitOpKind::ReceiveGradient:
                return receive(rank, op.stage + 1, {true, op.stage, op.microbatch});
            case UnitOpKind::Gather:
                return gather(op);
            case UnitOpKind::Free:
                return release(op);
            case UnitOpKind::Reduce:
                return reduce(op);
            case UnitOpKind::FinishReduce:
                return finish_reduce(op);
            default:
                return compute(rank, op);
        }
    }

    bool send(int rank, Message message) {
        auto& channel = channels_[{rank, message.to_stage % shape_.num_ranks}];
        if (channel) return false;
        message.round = round_[rank];
        channel = message;
        return true;
    }

    bool receive(int rank, int from_stage, Message expected) {
        auto& channel = channels_[{from_stage % shape_.num_ranks, rank}];
        if (!channel) return false;
        if (!(*channel == expected)) {
            return fail("rank {} awaits {} of microbatch {}, but the channel brings {} of microbatch {}",
                        rank, expected.gradient ? "the gradient" : "the activation", expected.microbatch,
                        channel->gradient ? "the gradient" : "the activation", channel->microbatch);
        }
        round_[rank] = std::max(round_[rank], channel->round);
        channel.reset();
        arrived_.insert({expected.gradient, expected.to_stage, expected.microbatch});
        return true;
    }

    bool compute(int rank, const UnitOp& op) {
        const bool sharded_use = options_.sharded && op.kind != UnitOpKind::BackwardWeight;
        if (sharded_use && !gathered_.contains({op.stage, op.unit})) {
            return fail("stage {} unit {} computes without its weights", op.stage, op.unit);
        }
        if (op.kind == UnitOpKind::Recompute) return true;
        if (!is_computation(op.kind)) return fail("stage {} unit {}: unknown op", op.stage, op.unit);
        if (!done_.insert({op.kind, op.stage, op.unit, op.microbatch}).second) {
            return fail("stage {} unit {} computes microbatch {} twice", op.stage, op.unit, op.microbatch);
        }
        if (!inputs_ready(op)) {
            return fail("stage {} unit {} computes microbatch {} before its input is there", op.stage,
                        op.unit, op.microbatch);
        }
        const bool gradient = op.kind == UnitOpKind::BackwardWeight || op.kind == UnitOpKind::Loss;
        if (gradient) unreduced_.insert({op.stage, op.unit});
        ++round_[rank];
        return true;
    }

    bool inputs_ready(const UnitOp& op) const {
        const StageUnits& units = options_.stages[op.stage];
        const auto did = [&](UnitOpKind kind, int unit) {
            return done_.contains({kind, op.stage, unit, op.microbatch});
        };
        const auto came = [&](bool gradient) {
            return arrived_.contains({gradient, op.stage, op.microbatch});
        };
        const bool first_stage = op.stage == 0, last_stage = op.stage == shape_.num_stages - 1;
        switch (op.kind) {
            case UnitOpKind::Forward:
                return op.unit > 0 ? did(op.kind, op.unit - 1) : first_stage || came(false);
            case UnitOpKind::Loss:
                return units.num_layers > 0 ? did(UnitOpKind::Forward, op.unit - 1) : came(false);
            case UnitOpKind::BackwardInput:
                if (!did(UnitOpKind::Forward, op.unit)) return false;
                if (op.unit + 1 < units.num_layers) return did(op.kind, op.unit + 1);
                return last_stage ? did(UnitOpKind::Loss, op.unit + 1) : came(true);
            default:
                return did(UnitOpKind::BackwardInput, op.unit);
        }
    }

    bool gather(const UnitOp& op) {
        if (gathered_.insert({op.stage, op.unit}).second) return true;
        return fail("stage {} unit {} is gathered twice", op.stage, op.unit);
    }

    bool release(const UnitOp& op) {
        if (gathered_.erase({op.stage, op.unit}) == 1) return true;
        return fail("stage {} unit {} is freed without being gathered", op.stage, op.unit);
    }

    bool reduce(const UnitOp& op) {
        if (reducing_) return fail("stage {} unit {} reduces while another does", op.stage, op.unit);
        if (unreduced_.erase({op.stage, op.unit}) == 0)
            return fail("stage {} unit {} has nothing to reduce", op.stage, op.unit);
        reducing_ = {op.stage, op.unit};
        return true;
    }

    bool finish_reduce(const UnitOp& op) {
        if (reducing_ != std::pair{op.stage, op.unit}) {
            return fail("stage {} unit {} finishes a reduction that it did not start", op.stage, op.unit);
        }
        reducing_.reset();
        return true;
    }

    void check_end() {
        for (size_t rank = 0; rank < programs_.size(); ++rank) {
            if (next_[rank] < programs_[rank].ops.size()) {
                fail("deadlock: rank {} waits at op {} of {}", rank, next_[rank], programs_[rank].ops.size());
                return;
            }
        }
        if (!gathered_.empty()) fail("weights stay gathered at the end");
        if (options_.sharded && !unreduced_.empty()) fail("gradients stay unreduced at the end");
        check_complete();
    }

    void check_complete() {
        for (int stage = 0; stage < shape_.num_stages; ++stage) {
            const StageUnits& units = options_.stages[stage];
            const auto expected =
                static_cast<int>(units.num_layers * 3 + units.has_head) * shape_.num_microbatches;
            const auto found = std::count_if(done_.begin(), done_.end(), [&](const Computation& entry) {
                return std::get<1>(entry) == stage;
            });
            if (found != expected) fail("stage {} ran {} computations, not {}", stage, found, expected);
        }
    }

    template <class... Args>
    bool fail(fmt::format_string<Args...> text, Args&&... args) {
        if (fault_.empty()) fault_ = fmt::format(text, std::forward<Args>(args)...);
        return false;
    }

    const std::vector<Program>& programs_;
    const ScheduleShape& shape_;
    const LoweringOptions& options_;
    std::vector<size_t> next_;  // by rank: the op that it is at
    std::vector<int> round_;    // by rank: computations on the longest chain so far
    std::map<std::pair<int, int>, std::optional<Message>> channels_;
    std::set<std::tuple<bool, int, int>> arrived_;  // gradient, stage, microbatch
    std::set<Computation> done_;
    std::set<std::pair<int, int>> gathered_, unreduced_;
    std::optional<std::pair<int, int>> reducing_;
    std::string fault_;
};

}  // namespace

Simulation simulate(const std::vector<Program>& programs, const ScheduleShape& shape,
                    const LoweringOptions& options) {
    return Simulator(programs, shape, options).run();
}

}  // namespace argosy::parallel
