#include "parallel/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "parallel/rank_ledger.h"

namespace argosy::parallel {
namespace {

bool is_send(UnitOpKind kind) {
    return kind == UnitOpKind::SendActivation || kind == UnitOpKind::SendGradient;
}

bool is_receive(UnitOpKind kind) {
    return kind == UnitOpKind::ReceiveActivation || kind == UnitOpKind::ReceiveGradient;
}

bool is_computation(UnitOpKind kind) {
    return kind == UnitOpKind::Forward || kind == UnitOpKind::Loss || kind == UnitOpKind::Recompute ||
           kind == UnitOpKind::BackwardInput || kind == UnitOpKind::BackwardWeight;
}

/// The receive that takes what `send` sends.
UnitOp receive_of(const UnitOp& send) {
    if (send.kind == UnitOpKind::SendActivation) {
        return {UnitOpKind::ReceiveActivation, send.stage + 1, -1, send.microbatch};
    }
    return {UnitOpKind::ReceiveGradient, send.stage - 1, -1, send.microbatch};
}

int stage_before(const UnitOp& receive) {
    return receive.kind == UnitOpKind::ReceiveActivation ? receive.stage - 1 : receive.stage + 1;
}

bool same_message(const UnitOp& a, const UnitOp& b) {
    return a.kind == b.kind && a.stage == b.stage && a.microbatch == b.microbatch;
}

/// The channel from one rank to another.
struct Channel {
    std::optional<UnitOp> receive;  // the receive that takes the message; none if the channel is empty
    int round = 0;                  // the round of the last send or receive on this channel
};

class Simulator {
  public:
    Simulator(const std::vector<Program>& programs, const ScheduleShape& shape,
              const LoweringOptions& options)
        : programs_(programs), shape_(shape), next_(programs.size(), 0), round_(programs.size(), 0) {
        ARGOSY_CHECK(std::ssize(programs) == shape.num_ranks, "{} programs", programs.size());
        for (int rank = 0; rank < shape.num_ranks; ++rank) {
            ledgers_.emplace_back(rank, programs[rank], shape, options);
        }
    }

    Simulation run() {
        bool moved = true;
        while (moved && fault_.empty()) {
            moved = false;
            for (int rank = 0; rank < shape_.num_ranks; ++rank) moved |= advance(rank);
        }
        if (fault_.empty()) check_end();
        Simulation result{fault_, {}, {}, *std::max_element(round_.begin(), round_.end())};
        for (const RankLedger& ledger : ledgers_) {
            result.max_in_flight.push_back(ledger.max_in_flight());
            result.max_gathered.push_back(ledger.max_gathered());
        }
        return result;
    }

  private:
    bool at_end(int rank) const { return next_[rank] == programs_[rank].ops.size(); }
    const UnitOp& next_op(int rank) const { return programs_[rank].ops[next_[rank]]; }

    /// Runs the rank's ops until one has to wait. Returns whether any op ran.
    bool advance(int rank) {
        const size_t start = next_[rank];
        while (fault_.empty() && !at_end(rank) && can_run(rank, next_op(rank))) {
            run(rank, next_op(rank));
            ++next_[rank];
        }
        return next_[rank] > start;
    }

    bool can_run(int rank, const UnitOp& op) {
        if (is_send(op.kind)) return !channel_of_send(rank, op).receive;
        if (is_receive(op.kind)) return channel_of_receive(rank, op).receive.has_value();
        return true;
    }

    void run(int rank, const UnitOp& op) {
        const std::string wrong = ledgers_[rank].enter(op);
        if (!wrong.empty()) return fail(rank, wrong);
        if (is_send(op.kind)) send(rank, op);
        if (is_receive(op.kind)) receive(rank, op);
        if (is_computation(op.kind)) ++round_[rank];
    }

    void send(int rank, const UnitOp& op) {
        Channel& channel = channel_of_send(rank, op);
        round_[rank] = std::max(round_[rank], channel.round);
        channel = {receive_of(op), round_[rank]};
    }

    void receive(int rank, const UnitOp& op) {
        Channel& channel = channel_of_receive(rank, op);
        if (!same_message(*channel.receive, op)) {
            return fail(rank, "the channel brings what is for the " + describe(*channel.receive));
        }
        round_[rank] = std::max(round_[rank], channel.round);
        channel = {std::nullopt, round_[rank]};
    }

    Channel& channel_of_send(int rank, const UnitOp& op) {
        return channels_[{rank, receive_of(op).stage % shape_.num_ranks}];
    }
    Channel& channel_of_receive(int rank, const UnitOp& op) {
        return channels_[{stage_before(op) % shape_.num_ranks, rank}];
    }

    void check_end() {
        for (int rank = 0; rank < shape_.num_ranks; ++rank) {
            if (!at_end(rank)) return fail(rank, "deadlock: it waits forever");
        }
        for (int rank = 0; rank < shape_.num_ranks; ++rank) {
            const std::string missing = ledgers_[rank].close();
            if (!missing.empty()) return fail(rank, missing);
        }
    }

    void fail(int rank, const std::string& what) {
        const std::string place =
            at_end(rank) ? "the end" : fmt::format("op {}, {}", next_[rank], describe(next_op(rank)));
        fault_ = fmt::format("rank {}, {}: {}", rank, place, what);
    }

    const std::vector<Program>& programs_;
    const ScheduleShape& shape_;
    std::vector<RankLedger> ledgers_;
    std::vector<size_t> next_;                         // by rank: index of the next op
    std::vector<int> round_;                           // by rank: computations on the longest chain so far
    std::map<std::pair<int, int>, Channel> channels_;  // by sending and receiving rank
    std::string fault_;
};

}  // namespace

Simulation simulate(const std::vector<Program>& programs, const ScheduleShape& shape,
                    const LoweringOptions& options) {
    return Simulator(programs, shape, options).run();
}

}  // namespace argosy::parallel
