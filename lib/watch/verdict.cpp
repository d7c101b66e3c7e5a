#include "watch/verdict.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "mpi/roll.h"
#include "watch/messages.h"

namespace argosy::watch {
namespace {

using QueueState = LaunchQueue::QueueState;
using UnderWay = LaunchQueue::QueueState::UnderWay;

using LaunchId = LaunchQueue::LaunchId;
using Work = LaunchQueue::Work;

/// The tab-separated fields of one launch queue in a report: key, name, number of launches begun outside of
/// graphs, the graph's launch and the number of its operations begun, LaunchId and Work (launch_queue.h) of
/// the last launch reached, seconds since then. If a launch is under way, these follow: members, LaunchId,
/// Work, seconds waited.
class Fields {
  public:
    explicit Fields(const std::string& line) {
        std::istringstream text(line);
        for (std::string field; std::getline(text, field, '\t');) fields_.push_back(field);
    }
    bool any_left() const { return next_ < fields_.size(); }
    std::string text() { return fields_.at(next_++); }
    int64_t integer() { return std::stoll(text()); }
    double number() { return std::stod(text()); }
    LaunchId id() {
        const int64_t graph = integer();
        return {graph, integer()};
    }
    Work work() {
        std::string kind = text();
        return {std::move(kind), integer()};
    }
    std::vector<int> integers() {
        std::vector<int> all;
        std::istringstream words(text());
        for (int one; words >> one;) all.push_back(one);
        return all;
    }

  private:
    std::vector<std::string> fields_;
    size_t next_ = 0;
};

QueueState state_of(Fields fields) {
    QueueState state;
    state.key = fields.text();
    state.name = fields.text();
    state.num_begun = fields.integer();
    state.graph = fields.id();
    state.last_id = fields.id();
    state.last = fields.work();
    state.seconds_since_last = fields.number();
    if (!fields.any_left()) return state;
    state.members = fields.integers();
    UnderWay& under_way = state.under_way.emplace();
    under_way.id = fields.id();
    under_way.work = fields.work();
    under_way.waited_seconds = fields.number();
    return state;
}

std::string text_of(const LaunchId& id) { return fmt::format("{}\t{}", id.graph, id.number); }
std::string text_of(const Work& work) { return fmt::format("{}\t{}", work.kind, work.elements); }

std::string text_of(const QueueState& one) {
    std::string text =
        fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}", one.key, one.name, one.num_begun, text_of(one.graph),
                    text_of(one.last_id), text_of(one.last), one.seconds_since_last);
    if (!one.under_way) return text;
    return text + fmt::format("\t{}\t{}\t{}\t{}", fmt::join(one.members, " "), text_of(one.under_way->id),
                              text_of(one.under_way->work), one.under_way->waited_seconds);
}

std::string operation(const Work& work, const std::string& name, const LaunchId& id) {
    return operation_name(work.kind, name, id.number, id.graph);
}
std::string operation(const QueueState& state) {
    return operation(state.under_way->work, state.name, state.under_way->id);
}

/// A rank that waits for a launch on one of its queues to end.
struct Waiting {
    int rank;
    QueueState state;
};

class Judge {
  public:
    explicit Judge(const Watched& watched) : watched_(watched) {
        for (const auto& [rank, report] : watched.reports) {
            for (const QueueState& state : report.queues) {
                if (state.under_way) waiting_.push_back({rank, state});
            }
            if (!report.error.empty()) errors_[rank] = report.error;
        }
    }

    /// The longest wait. Ranks that wait together report the same operation. A wait for an operation is
    /// preferred to a wait for a graph's launching call (no elements), because the call may itself wait for
    /// the operation.
    const Waiting* longest() const {
        const auto weight = [](const Waiting& one) {
            return std::pair(one.state.under_way->work.elements > 0, one.state.under_way->waited_seconds);
        };
        const auto found = std::ranges::max_element(waiting_, {}, weight);
        return found == waiting_.end() ? nullptr : &*found;
    }

    const std::map<int, std::string>& errors() const { return errors_; }

    mpi::Attendance attendance(const Waiting* told) const {
        mpi::Attendance found;
        std::set<int> missing;
        for (const Waiting& one : waiting_) {
            for (const int member : one.state.members) {
                if (is_missed(one, member)) missing.insert(member);
            }
            if (!told || one.state.key != told->state.key) {
                found.ranks_by_place[operation(one.state)].push_back(one.rank);
            }
        }
        for (int rank = 0; rank < watched_.num_ranks; ++rank) {
            if (!answered(rank) && std::ranges::count(watched_.apart, rank) == 0) missing.insert(rank);
        }
        found.missing.assign(missing.begin(), missing.end());
        return found;
    }

    /// Describes two ranks that run different work under the same number; empty if there are none.
    std::string mismatch() const {
        for (const Waiting& one : waiting_) {
            for (const Waiting& other : waiting_) {
                if (one.state.key != other.state.key) continue;
                const UnderWay &own = *one.state.under_way, &theirs = *other.state.under_way;
                if (own.id != theirs.id || own.work == theirs.work) continue;
                return fmt::format(
                    ". Operation {}{} over {} is {} of {} elements on rank {}, and {} of {} elements on rank "
                    "{}",
                    own.id.number, own.id.graph == 0 ? "" : fmt::format(" of graph {}", own.id.graph),
                    one.state.name, own.work.kind, own.work.elements, one.rank, theirs.work.kind,
                    theirs.work.elements, other.rank);
            }
        }
        return "";
    }

    /// Describes the last launch that the first missing rank with an answer has reached.
    std::string last_of(const std::vector<int>& missing) const {
        for (const int rank : missing) {
            const QueueState* last = nullptr;
            if (!answered(rank)) continue;
            for (const QueueState& one : watched_.reports.at(rank).queues) {
                const bool later = !last || one.seconds_since_last < last->seconds_since_last;
                if (one.last_id.number >= 0 && later) last = &one;
            }
            if (!last) continue;
            return fmt::format(". Rank {} came to {} {:.3g} s ago, and to nothing since", rank,
                               operation(last->last, last->name, last->last_id), last->seconds_since_last);
        }
        return "";
    }

  private:
    bool answered(int rank) const { return watched_.reports.contains(rank); }
    bool waits(int rank) const {
        return std::ranges::any_of(waiting_, [&](const Waiting& one) { return one.rank == rank; });
    }

    bool is_missed(const Waiting& one, int member) const {
        if (!answered(member) || waits(member)) return false;
        for (const QueueState& theirs : watched_.reports.at(member).queues) {
            if (theirs.key != one.state.key) continue;
            const LaunchId& id = one.state.under_way->id;
            return id.graph == 0 ? theirs.num_begun <= id.number : theirs.graph <= id;
        }
        return true;
    }

    const Watched& watched_;
    std::vector<Waiting> waiting_;
    std::map<int, std::string> errors_;
};

}  // namespace

std::string WatchReport::text() const {
    std::string on_one_line = error;
    std::ranges::replace(on_one_line, '\n', ' ');
    std::string text = fmt::format("{}\n{}\n", seconds_to_limit, on_one_line);
    for (const QueueState& one : queues) text += text_of(one) + '\n';
    return text;
}

WatchReport WatchReport::of_text(const std::string& text) {
    WatchReport report;
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    report.seconds_to_limit = std::stod(line);
    std::getline(lines, report.error);
    while (std::getline(lines, line)) report.queues.push_back(state_of(Fields(line)));
    return report;
}

std::optional<std::string> verdict(const Watched& watched) {
    const Judge judge(watched);
    const bool late =
        std::ranges::any_of(watched.reports, [](const auto& one) { return one.second.seconds_to_limit < 0; });
    if (!late && judge.errors().empty()) return std::nullopt;
    const Waiting* const told = judge.longest();
    const mpi::Attendance found = judge.attendance(told);
    std::string text;
    if (!judge.errors().empty()) {
        const auto& [rank, error] = *judge.errors().begin();
        text = fmt::format("seen on rank {}: {}", rank, error);
        if (!found.missing.empty()) text += "; " + mpi::named_missing(found.missing);
        return text;
    }
    if (!told) return std::nullopt;
    text = timeout_text({operation(told->state), told->state.members, watched.timeout_seconds}, found);
    return text + (found.missing.empty() ? judge.mismatch() : judge.last_of(found.missing));
}

std::string verdict_of_loss(const std::vector<int>& ranks) {
    return fmt::format(
        "a rank has ended without a word, or its node is gone; {}. What it printed itself, and its node's "
        "log, "
        "may say why",
        mpi::named_missing(ranks));
}

std::string verdict_alone(const WatchReport& own, double timeout_seconds) {
    Watched watched{.num_ranks = 1, .timeout_seconds = timeout_seconds, .reports = {{0, own}}, .apart = {}};
    const Judge judge(watched);
    const Waiting* const told = judge.longest();
    const std::string what = told ? operation(told->state) : "an operation";
    return fmt::format("{}: no answer in {} s, and rank 0's watchdog does not answer either; {}", what,
                       timeout_seconds, mpi::named_missing(std::vector{0}));
}

}  // namespace argosy::watch
