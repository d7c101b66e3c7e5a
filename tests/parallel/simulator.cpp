#include "parallel/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "parallel/programs.h"
#include "parallel/rank_ledger.h"

namespace argosy::parallel {
namespace {

bool is_computation(UnitOpKind kind) {
    return kind == UnitOpKind::Forward || kind == UnitOpKind::Loss || kind == UnitOpKind::LossInput ||
           kind == UnitOpKind::Recompute || kind == UnitOpKind::BackwardInput ||
           kind == UnitOpKind::BackwardWeight;
}

bool is_of_gradient(const UnitOp& op) {
    return op.kind == UnitOpKind::ReceiveGradient || op.kind == UnitOpKind::TakeGradient;
}

bool same_message(const UnitOp& a, const UnitOp& b) {
    return a.kind == b.kind && a.stage == b.stage && a.unit == b.unit && a.microbatch == b.microbatch;
}

/// The channel from one rank to another in one group of ranks.
struct Channel {
    struct End {
        UnitOp receive;  // the receive that the message is for, or that has started
        int round;       // the round in which the send or the receive started
    };
    std::optional<End> sent, started;                 // a send and a receive that have not met
    std::optional<UnitOp> receiving;                  // the receive whose message was not taken
    bool sender_came = false, receiver_came = false;  // both: connected
    bool has_message = false;                         // a message has arrived and was not taken
    int arrival_round = 0;                            // of the last message

    bool connected() const { return sender_came && receiver_came; }
};

class Simulator {
  public:
    Simulator(const std::vector<Program>& programs, const ScheduleShape& shape,
              const LoweringOptions& options, const Transport& transport)
        : programs_(programs),
          shape_(shape),
          stages_(shape.stages()),
          options_(options),
          transport_(transport),
          next_(programs.size(), 0),
          round_(programs.size(), 0) {
        ARGOSY_CHECK(std::ssize(programs) == shape.num_ranks, "{} programs", programs.size());
        for (int rank = 0; rank < shape.num_ranks; ++rank) {
            ledgers_.emplace_back(rank, programs[rank], shape, options);
            end_.push_back(programs[rank].ops.size());
        }
    }

    Simulation run() {
        run_as_far_as_possible();
        if (fault_.empty()) check_end();
        Simulation result{fault_, {}, {}, *std::max_element(round_.begin(), round_.end())};
        for (const RankLedger& ledger : ledgers_) {
            result.max_in_flight.push_back(ledger.max_in_flight());
            result.max_gathered.push_back(ledger.max_gathered());
        }
        return result;
    }

    std::string missing_after_stop(int rank, size_t position) {
        end_[rank] = position;
        run_as_far_as_possible();
        if (!at_end(rank)) fail(rank, "it does not come to the stop");
        if (!fault_.empty()) return fault_;
        for (const auto& [ranks, channel] : channels_) {
            if (std::get<1>(ranks) == rank && channel.started) return describe(channel.started->receive);
        }
        return "";
    }

  private:
    bool at_end(int rank) const { return next_[rank] == end_[rank]; }
    const UnitOp& next_op(int rank) const { return programs_[rank].ops[next_[rank]]; }

    void run_as_far_as_possible() {
        bool moved = true;
        while (moved && fault_.empty()) {
            moved = false;
            for (int rank = 0; rank < shape_.num_ranks; ++rank) moved |= advance(rank);
        }
    }

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
        if (is_send(op.kind)) {
            Channel& channel = channel_of_send(rank, op);
            channel.sender_came = true;
            return !channel.sent && is_open(channel);
        }
        if (is_receive(op.kind)) {
            Channel& channel = channel_to(rank, op);
            channel.receiver_came = true;
            return is_open(channel);
        }
        return !is_take(op.kind) || channel_to(rank, op).has_message;
    }

    bool is_open(const Channel& channel) const {
        return channel.connected() || !transport_.connects_at_first_message;
    }

    void run(int rank, const UnitOp& op) {
        const std::string wrong = ledgers_[rank].enter(op);
        if (!wrong.empty()) return fail(rank, wrong);
        if (is_send(op.kind)) send(rank, op);
        if (is_receive(op.kind)) receive(rank, op);
        if (is_take(op.kind)) take(rank, op);
        if (is_computation(op.kind)) ++round_[rank];
    }

    void send(int rank, const UnitOp& op) {
        Channel& channel = channel_of_send(rank, op);
        round_[rank] = std::max(round_[rank], channel.arrival_round);
        channel.sent = {receive_of(op), round_[rank]};
        transfer(rank, channel);
    }

    void receive(int rank, const UnitOp& op) {
        Channel& channel = channel_to(rank, op);
        if (channel.receiving) return fail(rank, "the " + describe(*channel.receiving) + " is under way");
        channel.receiving = op;
        channel.started = {op, transport_.ignores_receives ? 0 : round_[rank]};
        transfer(rank, channel);
    }

    void transfer(int rank, Channel& channel) {
        if (!channel.sent || !channel.started) return;
        if (!same_message(channel.sent->receive, channel.started->receive)) {
            return fail(rank,
                        fmt::format("the channel brings what is for the {} to the {}",
                                    describe(channel.sent->receive), describe(channel.started->receive)));
        }
        channel.arrival_round =
            std::max(channel.sent->round, channel.started->round) + transport_.transfer_rounds;
        channel.has_message = true;
        channel.sent = channel.started = std::nullopt;
    }

    void take(int rank, const UnitOp& op) {
        Channel& channel = channel_to(rank, op);
        round_[rank] = std::max(round_[rank], channel.arrival_round);
        channel.has_message = false;
        channel.receiving.reset();
    }

    /// The receive that takes what `send` sends.
    UnitOp receive_of(const UnitOp& send) const {
        if (send.kind == UnitOpKind::SendActivation) {
            return {UnitOpKind::ReceiveActivation, send.stage + 1, -1, send.microbatch};
        }
        if (send.kind == UnitOpKind::SendGradient) {
            return {UnitOpKind::ReceiveGradient, send.stage - 1, -1, send.microbatch};
        }
        const int stage = other_end(send.stage);
        return {UnitOpKind::ReceiveTable, stage, options_.stages[stage].tied_unit, -1};
    }

    /// The other one of the first and the last stage, which hold a tied table.
    int other_end(int stage) const { return stage == 0 ? shape_.num_stages - 1 : 0; }

    /// The stage that sends the message of a receive or a take.
    int sending_stage(const UnitOp& op) const {
        if (is_of_table(op.kind)) return other_end(op.stage);
        return is_of_gradient(op) ? op.stage + 1 : op.stage - 1;
    }

    /// Whether the message of a receive or a take goes in the gradients' own group. Ranks that have several
    /// stages have such a group; otherwise one group has all messages.
    bool in_second_group(const UnitOp& op) const {
        return shape_.num_stages > shape_.num_ranks && is_of_gradient(op);
    }

    Channel& channel_of_send(int rank, const UnitOp& op) {
        const UnitOp receive = receive_of(op);
        return channels_[{rank, stages_.rank_of(receive.stage), in_second_group(receive)}];
    }
    /// The channel of a receive or a take of `rank`.
    Channel& channel_to(int rank, const UnitOp& op) {
        return channels_[{stages_.rank_of(sending_stage(op)), rank, in_second_group(op)}];
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
    const StageMap stages_;
    const LoweringOptions& options_;
    const Transport transport_;
    std::vector<RankLedger> ledgers_;
    std::vector<size_t> next_, end_;  // by rank: index of the next op, and the end of its ops
    std::vector<int> round_;          // by rank: the round that it has reached
    /// By sending and receiving rank, and whether it is in the gradients' own group.
    std::map<std::tuple<int, int, bool>, Channel> channels_;
    std::string fault_;
};

}  // namespace

Simulation simulate(const std::vector<Program>& programs, const ScheduleShape& shape,
                    const LoweringOptions& options, const Transport& transport) {
    return Simulator(programs, shape, options, transport).run();
}

std::string missing_after_stop(const std::vector<Program>& programs, const ScheduleShape& shape,
                               const LoweringOptions& options, int rank, size_t position) {
    return Simulator(programs, shape, options, {}).missing_after_stop(rank, position);
}

}  // namespace argosy::parallel
