#include "parallel/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"

namespace argosy::parallel {
namespace {

using enum ActionKind;

bool runs_backward(ActionKind kind) { return kind == Backward || kind == BackwardInput; }

/// An activation or a gradient that a stage needs from a neighbour for a microbatch.
struct Message {
    bool activation;
    int stage;  // the stage that needs it
    int microbatch;
    auto operator<=>(const Message&) const = default;

    int sender() const { return activation ? stage - 1 : stage + 1; }
    Action action(ActionKind of_activation, ActionKind of_gradient) const {
        return {activation ? of_activation : of_gradient, stage, microbatch};
    }
};

/// The message that the action needs, or makes; none at the ends of the pipeline.
std::optional<Message> needed_by(const Action& action, const StageMap& stages) {
    if (action.kind == Forward && action.stage > 0) return Message{true, action.stage, action.microbatch};
    const bool last = action.stage + 1 == stages.num_stages();
    if (runs_backward(action.kind) && !last) return Message{false, action.stage, action.microbatch};
    return std::nullopt;
}

std::optional<Message> made_by(const Action& action, const StageMap& stages) {
    const bool last = action.stage + 1 == stages.num_stages();
    if (action.kind == Forward && !last) return Message{true, action.stage + 1, action.microbatch};
    if (runs_backward(action.kind) && action.stage > 0) {
        return Message{false, action.stage - 1, action.microbatch};
    }
    return std::nullopt;
}

/// Carries the activations, or the gradients, from one rank to another.
struct Channel {
    int sender, receiver;  // ranks
    bool activations;
    auto operator<=>(const Channel&) const = default;
};

Channel channel_of(const Message& message, const StageMap& stages) {
    return {stages.rank_of(message.sender()), stages.rank_of(message.stage), message.activation};
}

bool within_a_rank(const Message& message, const StageMap& stages) {
    return stages.rank_of(message.sender()) == stages.rank_of(message.stage);
}

/// Returns for each message how many actions of its receiver, from the first one on, it depends on. The
/// lists run without transfers, as far as possible; messages that are not made are left out.
std::map<Message, int> own_actions_before(const RankActions& ranks, const StageMap& stages) {
    const size_t num_ranks = ranks.size();
    std::map<Message, std::vector<int>> made;  // by message: for each rank, how many actions it depends on
    std::map<Message, int> before;
    std::vector<std::vector<int>> reached(num_ranks, std::vector<int>(num_ranks));
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t rank = 0; rank < num_ranks; ++rank) {
            std::vector<int>& own = reached[rank];
            for (auto& next = own[rank]; next < std::ssize(ranks[rank]); ++next, moved = true) {
                const Action& action = ranks[rank][next];
                if (const auto needed = needed_by(action, stages)) {
                    const auto found = made.find(*needed);
                    if (found == made.end()) break;
                    for (size_t i = 0; i < num_ranks; ++i) {
                        if (i != rank) own[i] = std::max(own[i], found->second[i]);
                    }
                    made.erase(found);
                }
                if (const auto message = made_by(action, stages)) {
                    std::vector<int>& counts = made[*message] = own;
                    ++counts[rank];
                    before[*message] = counts[stages.rank_of(message->stage)];
                }
            }
        }
    }
    return before;
}

/// The receives of each rank: by position of the action before which they start.
struct Receives {
    std::multimap<int, Message> own, ahead;  // of the action at the position, and of later ones
};

/// Returns a list for each rank. `messages` of a channel are in the order of the sends; `position` is that of
/// the action that needs the message.
std::vector<Receives> place_receives(const std::map<Channel, std::vector<Message>>& messages,
                                     const std::map<Message, int>& position,
                                     const std::map<Message, int>& own_before, size_t num_ranks) {
    std::vector<Receives> ranks(num_ranks);
    for (const auto& [channel, all] : messages) {
        std::vector<int> deadlines;  // the receives keep their order: each starts before all later ones
        for (const Message& message : all) deadlines.push_back(position.at(message));
        for (size_t i = all.size() - 1; i > 0; --i) {
            deadlines[i - 1] = std::min(deadlines[i - 1], deadlines[i]);
        }
        int start = deadlines[0];
        for (size_t i = 0; i < all.size(); ++i) {
            const auto known = own_before.find(all[i]);
            const int earliest = known == own_before.end() ? deadlines[i] : known->second;
            if (i > 0) start = std::max(start, std::min(deadlines[i], std::max(deadlines[i] - 1, earliest)));
            Receives& receives = ranks[channel.receiver];
            (start == deadlines[i] ? receives.own : receives.ahead).insert({start, all[i]});
        }
    }
    return ranks;
}

void add_receives(const std::multimap<int, Message>& receives, int position, std::vector<Action>& actions) {
    for (auto [next, end] = receives.equal_range(position); next != end; ++next) {
        actions.push_back(next->second.action(ReceiveActivation, ReceiveGradient));
    }
}

/// One rank's actions with their transfers.
std::vector<Action> with_transfers(const std::vector<Action>& actions, const Receives& receives,
                                   const StageMap& stages) {
    std::vector<Action> result;
    for (int i = 0; i < std::ssize(actions); ++i) {
        add_receives(receives.own, i, result);
        if (const auto needed = needed_by(actions[i], stages)) {
            // A gradient was moved when it was made: its stage's slot exists by then, and the other one ends.
            if (!within_a_rank(*needed, stages)) {
                result.push_back(needed->action(TakeActivation, TakeGradient));
            } else if (needed->activation) {
                result.push_back(needed->action(MoveActivation, MoveGradient));
            }
        }
        add_receives(receives.ahead, i, result);
        result.push_back(actions[i]);
        if (const auto made = made_by(actions[i], stages)) {
            if (!within_a_rank(*made, stages)) {
                result.push_back({made->activation ? SendActivation : SendGradient, actions[i].stage,
                                  actions[i].microbatch});
            } else if (!made->activation) {
                result.push_back(made->action(MoveActivation, MoveGradient));
            }
        }
    }
    return result;
}

/// The message that a transfer sends, receives, takes or moves.
Message message_of(const Action& action) {
    switch (action.kind) {
        case SendActivation:
            return {true, action.stage + 1, action.microbatch};
        case SendGradient:
            return {false, action.stage - 1, action.microbatch};
        case ReceiveActivation:
        case TakeActivation:
        case MoveActivation:
            return {true, action.stage, action.microbatch};
        default:
            return {false, action.stage, action.microbatch};
    }
}

std::string written(const Message& message) {
    return fmt::format("the {} of stage {} for microbatch {}", message.activation ? "activation" : "gradient",
                       message.sender(), message.microbatch);
}

class Simulator {
  public:
    Simulator(const RankActions& ranks, const StageMap& stages, const ActionTimes& times)
        : ranks_(ranks), stages_(stages), times_(times), next_(ranks.size()), time_(ranks.size()) {}

    ActionSimulation run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t rank = 0; rank < ranks_.size(); ++rank) {
                for (; !at_end(rank) && advance(rank, ranks_[rank][next_[rank]]); ++next_[rank]) moved = true;
            }
        }
        for (size_t rank = 0; rank < ranks_.size(); ++rank) {
            if (!at_end(rank)) add_waiting(rank);
        }
        result_.duration = *std::ranges::max_element(time_);
        return result_;
    }

  private:
    struct State {
        std::optional<std::pair<Message, double>> sent;  // a send without its receive, and its time
        std::deque<std::pair<Message, double>> started;  // receives without their sends
        std::map<Message, double> arrived;               // not taken yet
        double last_arrival = 0;
    };

    bool at_end(size_t rank) const { return next_[rank] == ranks_[rank].size(); }

    /// Runs the action unless it has to wait.
    bool advance(size_t rank, const Action& action) {
        switch (action.kind) {
            case SendActivation:
            case SendGradient:
                return send(rank, message_of(action));
            case ReceiveActivation:
            case ReceiveGradient: {
                State& channel = channels_[channel_of(message_of(action), stages_)];
                channel.started.emplace_back(message_of(action), time_[rank]);
                transfer(channel);
                return true;
            }
            case TakeActivation:
            case TakeGradient:
                return take(rank, message_of(action));
            case MoveActivation:
            case MoveGradient:
                return true;
            default:
                time_[rank] += duration(action.kind);
                result_.busy += duration(action.kind);
                return true;
        }
    }

    bool send(size_t rank, const Message& message) {
        State& channel = channels_[channel_of(message, stages_)];
        if (channel.sent) return false;
        time_[rank] = std::max(time_[rank], channel.last_arrival);
        channel.sent = {message, time_[rank]};
        transfer(channel);
        return true;
    }

    void transfer(State& channel) {
        if (!channel.sent || channel.started.empty()) return;
        const auto [message, started] = channel.started.front();
        ARGOSY_CHECK(message == channel.sent->first, "a channel has {} before {}",
                     written(channel.sent->first), written(message));
        channel.last_arrival = std::max(started, channel.sent->second) + times_.transfer;
        channel.arrived[message] = channel.last_arrival;
        channel.started.pop_front();
        channel.sent.reset();
    }

    bool take(size_t rank, const Message& message) {
        State& channel = channels_[channel_of(message, stages_)];
        const auto found = channel.arrived.find(message);
        if (found == channel.arrived.end()) return false;
        time_[rank] = std::max(time_[rank], found->second);
        channel.arrived.erase(found);
        return true;
    }

    double duration(ActionKind kind) const {
        if (kind == Forward) return times_.forward;
        return (kind != BackwardWeight ? times_.backward_input : 0) +
               (kind != BackwardInput ? times_.backward_weight : 0);
    }

    void add_waiting(size_t rank) {
        const Action& action = ranks_[rank][next_[rank]];
        const Message message = message_of(action);
        std::string& text = result_.deadlock;
        if (!text.empty()) text += "; ";
        if (action.kind == SendActivation || action.kind == SendGradient) {
            const Message& under_way = channels_[channel_of(message, stages_)].sent->first;
            text += fmt::format("rank {} waits until rank {} receives {}", rank,
                                stages_.rank_of(under_way.stage), written(under_way));
        } else {
            text += fmt::format("rank {} waits for {} from rank {}", rank, written(message),
                                stages_.rank_of(message.sender()));
        }
    }

    const RankActions& ranks_;
    const StageMap& stages_;
    const ActionTimes times_;
    std::vector<size_t> next_;  // by rank: number of its next action
    std::vector<double> time_;  // by rank: the time that it has reached
    std::map<Channel, State> channels_;
    ActionSimulation result_;
};

}  // namespace

RankActions with_transfers(const RankActions& ranks, const StageMap& stages) {
    std::map<Channel, std::vector<Message>> messages;
    std::map<Message, int> position;
    for (const auto& actions : ranks) {
        for (int i = 0; i < std::ssize(actions); ++i) {
            if (const auto needed = needed_by(actions[i], stages)) position[*needed] = i;
            const auto made = made_by(actions[i], stages);
            if (made && !within_a_rank(*made, stages)) messages[channel_of(*made, stages)].push_back(*made);
        }
    }
    const auto receives = place_receives(messages, position, own_actions_before(ranks, stages), ranks.size());
    RankActions result;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        result.push_back(with_transfers(ranks[rank], receives[rank], stages));
    }
    return result;
}

ActionSimulation simulate_actions(const RankActions& ranks, const StageMap& stages,
                                  const ActionTimes& times) {
    return Simulator(ranks, stages, times).run();
}

}  // namespace argosy::parallel
