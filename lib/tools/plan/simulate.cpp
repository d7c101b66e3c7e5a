#include "plan/simulate.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace argosy::plan {
namespace {

/// A message: a channel of a group, the sending and the receiving rank, and its number on this way.
using Message = std::tuple<std::string, int, int, int, int64_t>;

/// When each side launched a message.
struct Meeting {
    std::optional<double> sent, received;
    bool complete() const { return sent && received; }
    double begin() const { return std::max(*sent, *received); }
};

class Simulation {
  public:
    explicit Simulation(std::span<const RankTrace> traces) {
        for (const RankTrace& trace : traces) ranks_.emplace_back(trace);
    }

    std::vector<RankTime> run() {
        for (bool moves = true; moves;) {
            moves = false;
            for (Rank& rank : ranks_) moves |= advance(rank);
        }
        std::vector<RankTime> times;
        for (const Rank& rank : ranks_) {
            ARGOSY_CHECK(rank.next == rank.trace.events.size(), "rank {} waits for ever in a planned step",
                         rank.trace.rank);
            times.push_back(rank.time);
        }
        return times;
    }

  private:
    struct Rank {
        explicit Rank(const RankTrace& events) : trace(events), ends(events.launches.size()) {
            time.exposed_of_launches.resize(events.launches.size());
        }

        const RankTrace& trace;
        size_t next = 0;  // event
        RankTime time = {};
        struct Lane {
            double busy_until = 0, held = 0;
        };
        std::map<std::pair<std::string, int>, Lane> lanes = {};  // of each group
        double launched = 0;                                     // when the host is free again
        bool in_update = false;
        std::vector<double> ends;                               // of collectives
        std::map<int64_t, std::vector<Message>> messages = {};  // of a launch
        std::map<std::tuple<std::string, int, int, int>, int64_t> num_messages = {};
    };

    /// Runs events until one has to wait for another rank. Returns whether any has run.
    bool advance(Rank& rank) {
        const size_t first = rank.next;
        while (rank.next < rank.trace.events.size() && run_event(rank, rank.trace.events[rank.next]))
            ++rank.next;
        return rank.next > first;
    }

    /// Returns false if the event needs another rank to go on first.
    bool run_event(Rank& rank, const Event& event) {
        switch (event.kind) {
            case Event::Kind::Compute:
                compute(rank, event);
                return true;
            case Event::Kind::Launch:
                launch(rank, event.launch);
                return true;
            case Event::Kind::Wait:
                return wait(rank, event.launch);
        }
        return true;
    }

    void compute(Rank& rank, const Event& event) {
        RankTime& time = rank.time;
        double& computes = event.is_optimizer ? time.optimizer : time.compute;
        const double seconds = stretched_seconds(rank, event);
        computes += seconds;
        time.total += seconds;
        // Before the update the host waits for the device (train/step.h).
        if (event.is_optimizer && !std::exchange(rank.in_update, true))
            rank.launched = std::max(rank.launched, time.total - seconds);
        rank.launched += event.host_seconds;
        const double late = std::max(0.0, rank.launched - time.total);
        (event.is_optimizer ? time.optimizer : time.launches) += late;
        time.total += late;
    }

    /// The time of the event if it begins now, beside the collectives under way. Products and attention are
    /// taken to be spread evenly over the event. A lane is busy without a pause until its end.
    static double stretched_seconds(const Rank& rank, const Event& event) {
        constexpr double kMostHeld = 0.5;
        if (event.dense_seconds == 0) return event.seconds;
        std::map<double, double> ends;  // of lanes, with the shares that they hold until then
        double held = 0;
        for (const auto& [group, lane] : rank.lanes) {
            if (lane.busy_until <= rank.time.total || lane.held == 0) continue;
            ends[lane.busy_until] += lane.held;
            held += lane.held;
        }
        double now = rank.time.total, left = event.seconds;
        for (const auto& [end, share] : ends) {
            const double kept = 1 - std::min(held, kMostHeld);
            const double stretch = 1 + event.dense_seconds / event.seconds * (1 / kept - 1);
            if (left * stretch <= end - now) return now + left * stretch - rank.time.total;
            left -= (end - now) / stretch;
            now = end;
            held -= share;
        }
        return now + left - rank.time.total;
    }

    void launch(Rank& rank, int64_t index) {
        const Launch& launch = rank.trace.launches[index];
        if (is_between_stages(launch)) {
            for (const int peer : launch.send_to)
                meet(rank, index, rank.trace.rank, peer).sent = rank.time.total;
            for (const int peer : launch.receive_from)
                meet(rank, index, peer, rank.trace.rank).received = rank.time.total;
            return;
        }
        auto& lane = rank.lanes[{launch.group, launch.channel}];
        lane.busy_until = std::max(lane.busy_until, rank.time.total) + launch.seconds;
        lane.held = launch.held;
        rank.ends[index] = lane.busy_until;
    }

    Meeting& meet(Rank& rank, int64_t index, int from, int to) {
        const Launch& launch = rank.trace.launches[index];
        const int64_t number = rank.num_messages[{launch.group, launch.channel, from, to}]++;
        const Message message{launch.group, launch.channel, from, to, number};
        rank.messages[index].push_back(message);
        return meetings_[message];
    }

    bool wait(Rank& rank, int64_t index) {
        const Launch& launch = rank.trace.launches[index];
        double begin = 0, end = rank.ends[index], last_sent = 0;
        for (const Message& message : rank.messages[index]) {
            const Meeting& meeting = meetings_.at(message);
            if (!meeting.complete()) return false;
            if (std::get<3>(message) == rank.trace.rank) last_sent = std::max(last_sent, *meeting.sent);
            begin = std::max(begin, meeting.begin());
            end = begin + launch.seconds;
        }
        RankTime& time = rank.time;
        if (!launch.is_beside) end = std::max(begin, time.total) + launch.seconds;
        const double late = std::max(0.0, last_sent - time.total);
        time.bubble += late;
        time.total += late;
        const double exposed = std::max(0.0, end - time.total);
        if (launch.in_update) {
            time.optimizer += exposed;
        } else if (exposed > 0) {
            time.exposed[launch.group] += exposed;
        }
        time.exposed_of_launches[index] = exposed;
        time.total += exposed;
        return true;
    }

    /// Whether the launch has messages between the ranks of this simulation. Messages of other axes are taken
    /// to meet at once.
    bool is_between_stages(const Launch& launch) const {
        if (!launch.is_message()) return false;
        const auto is_here = [&](int number) {
            return std::ranges::any_of(ranks_, [&](const Rank& rank) { return rank.trace.rank == number; });
        };
        return std::ranges::all_of(launch.send_to, is_here) &&
               std::ranges::all_of(launch.receive_from, is_here);
    }

    std::deque<Rank> ranks_;
    std::map<Message, Meeting> meetings_;
};

}  // namespace

double RankTime::sum() const {
    double sum = compute + optimizer + launches + bubble;
    for (const auto& [group, seconds] : exposed) sum += seconds;
    return sum;
}

std::vector<RankTime> simulate_step(std::span<const RankTrace> traces) { return Simulation(traces).run(); }

}  // namespace argosy::plan
