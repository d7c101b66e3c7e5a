#include "watch/root_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "mpi/rank_list.h"

namespace argosy::watch {
namespace {

using LaunchId = LaunchQueue::LaunchId;

constexpr size_t kMaxOtherWaits = 4;

constexpr const char* kMissingRank =
    ". A missing rank is dead, stuck or much slower; its own message, if any, says why";
constexpr const char* kAllRanksWait =
    "all ranks are waiting: one of them came too late, or they wait for different operations, or the "
    "network between them does not work";

struct WaitingRank {
    int rank;
    const WaitReport* wait;
};

/// A message is about the longest wait. A wait for an operation is preferred to a wait for the call that
/// launches a graph (no elements), because that call may itself wait for the operation.
std::pair<bool, double> weight_in_message(const WaitReport& wait) {
    const bool is_call = wait.needs == Needs::Launch && wait.work.elements == 0;
    return {!is_call, wait.waited_seconds};
}

/// The actions (Needs) that the ranks waiting for a group need from its members.
struct Awaited {
    std::vector<int> members;
    bool attention = false;
    LaunchId last_outside = {0, -1}, last_in_graph = {0, -1};  // the last launches that ranks wait for
};

class Analysis {
  public:
    explicit Analysis(const Reports& reports) : reports_(reports), num_waits_(reports.num_ranks) {
        for (const auto& [rank, report] : reports.by_rank) {
            for (const WaitReport& wait : report.waits) waiting_.push_back({rank, &wait});
            num_waits_.at(rank) = report.waits.size();
        }
        for (const auto& [rank, wait] : waiting_) add_to_awaited(*wait);
    }

    /// The wait that the message is about.
    const WaitingRank* longest_wait() const {
        const auto found = std::ranges::max_element(
            waiting_, {}, [](const WaitingRank& one) { return weight_in_message(*one.wait); });
        return found == waiting_.end() ? nullptr : &*found;
    }

    /// The missing ranks. The search begins with the late waits, or with all waits if none is late.
    std::vector<int> missing() const {
        const bool any_late = std::ranges::any_of(waiting_, [](auto& one) { return one.wait->is_late(); });
        std::unordered_map<uint64_t, bool> seen;
        std::vector<uint64_t> keys;
        const auto follow = [&](const WaitReport& wait) {
            if (!std::exchange(seen[wait.key], true)) keys.push_back(wait.key);
        };
        for (const auto& [rank, wait] : waiting_) {
            if (!any_late || wait->is_late()) follow(*wait);
        }
        std::vector<int> missing = silent();
        while (!keys.empty()) {
            const uint64_t key = keys.back();
            keys.pop_back();
            for (const int member : awaited_.at(key).members) {
                const auto report = reports_.by_rank.find(member);
                if (report == reports_.by_rank.end()) continue;
                for (const WaitReport& wait : report->second.waits) follow(wait);
                if (num_waits_[member] == 0 && is_missed(report->second, key)) missing.push_back(member);
            }
        }
        std::ranges::sort(missing);
        const auto repeated = std::ranges::unique(missing);
        missing.erase(repeated.begin(), repeated.end());
        return missing;
    }

    /// Text on the waits for other groups than the group of `reported`.
    std::string other_waits(const WaitReport& reported) const {
        std::map<std::string, std::vector<int>> ranks_of;
        for (const auto& [rank, wait] : waiting_) {
            if (wait->key != reported.key) ranks_of[wait->operation].push_back(rank);
        }
        std::string text;
        size_t num_left = kMaxOtherWaits;
        for (const auto& [operation, ranks] : ranks_of) {
            text += text.empty() ? ". The others wait for " : "; ";
            if (num_left-- == 0) return text + "...";
            text += fmt::format("{}: rank {}", operation, mpi::listed(ranks));
        }
        return text;
    }

    /// Describes two ranks whose launches have the same number but different work; empty if there are none.
    std::string mismatch() const {
        std::vector<WaitingRank> sorted;
        for (const WaitingRank& one : waiting_) {
            if (one.wait->needs == Needs::Launch) sorted.push_back(one);
        }
        const auto identity = [](const WaitingRank& one) { return std::pair(one.wait->key, one.wait->id); };
        std::ranges::stable_sort(sorted, {}, identity);
        for (size_t i = 1; i < sorted.size(); ++i) {
            const WaitReport &first = *sorted[i - 1].wait, &second = *sorted[i].wait;
            if (identity(sorted[i - 1]) != identity(sorted[i]) || first.work == second.work) continue;
            return fmt::format(
                ". Operation {}{} over {} is {} of {} elements on rank {}, and {} of {} elements on rank {}",
                first.id.number, first.id.graph == 0 ? "" : fmt::format(" of graph {}", first.id.graph),
                first.group, first.work.kind, first.work.elements, sorted[i - 1].rank, second.work.kind,
                second.work.elements, sorted[i].rank);
        }
        return "";
    }

    /// Describes the last launch of the first missing rank that has answered.
    std::string last_operation_of(const std::vector<int>& missing) const {
        for (const int rank : missing) {
            const auto report = reports_.by_rank.find(rank);
            if (report == reports_.by_rank.end() || report->second.last_operation.empty()) continue;
            return fmt::format(". Rank {} last reached {}, {:.3g} s ago", rank, report->second.last_operation,
                               report->second.seconds_since_last);
        }
        return "";
    }

  private:
    void add_to_awaited(const WaitReport& wait) {
        const auto [found, is_new] = awaited_.try_emplace(wait.key);
        Awaited& group = found->second;
        if (is_new) group.members = expand_ranks(wait.members);
        if (wait.needs == Needs::Attention) group.attention = true;
        LaunchId& last = wait.id.graph == 0 ? group.last_outside : group.last_in_graph;
        last = std::max(last, wait.id);
    }

    /// Ranks that have not answered although they can be asked.
    std::vector<int> silent() const {
        std::vector<int> found;
        for (int rank = 0; rank < reports_.num_ranks; ++rank) {
            if (reports_.by_rank.contains(rank)) continue;
            if (!std::ranges::binary_search(reports_.unreachable, rank)) found.push_back(rank);
        }
        return found;
    }

    /// Whether a rank that waits for nothing has not yet done what other ranks of the group `key` need.
    bool is_missed(const Report& report, uint64_t key) const {
        const Awaited& group = awaited_.at(key);
        if (group.attention) return true;
        const auto own = std::ranges::lower_bound(report.queues, key, {}, &QueueProgress::key);
        if (own == report.queues.end() || own->key != key) return true;
        return own->num_begun <= group.last_outside.number ||
               (group.last_in_graph.graph > 0 && own->graph <= group.last_in_graph);
    }

    const Reports& reports_;
    std::vector<WaitingRank> waiting_;
    std::vector<size_t> num_waits_;  // by rank
    std::unordered_map<uint64_t, Awaited> awaited_;
};

std::string timeout_text(const WaitReport& wait, const std::string& why) {
    return fmt::format("{} of ranks {}: no answer in {} s; {} ({} sets the limit)", wait.operation,
                       mpi::listed(expand_ranks(wait.members)), wait.limit_seconds, why, wait.limit_name);
}

}  // namespace

std::optional<RootCause> find_root_cause(const Reports& reports) {
    const auto failed =
        std::ranges::find_if(reports.by_rank, [](const auto& one) { return !one.second.error.empty(); });
    const bool any_error = failed != reports.by_rank.end();
    const bool late =
        std::ranges::any_of(reports.by_rank, [](const auto& one) { return one.second.is_late(); });
    if (!late && !any_error) return std::nullopt;
    const Analysis analysis(reports);
    RootCause cause{.missing = analysis.missing(), .reporter = 0, .details = "", .message = ""};
    const WaitingRank* const longest = analysis.longest_wait();
    if (longest) {
        cause.reporter = longest->rank;
        cause.details =
            analysis.other_waits(*longest->wait) +
            (cause.missing.empty() ? analysis.mismatch() : analysis.last_operation_of(cause.missing));
        cause.message = timeout_text(*longest->wait, cause.missing, cause.details);
    }
    if (any_error) {
        cause.message = fmt::format("rank {} reports: {}", failed->first, failed->second.error);
        if (!cause.missing.empty()) cause.message += "; " + mpi::named_missing(cause.missing);
    }
    return cause;
}

std::string timeout_text(const WaitReport& wait, const std::vector<int>& missing,
                         const std::string& details) {
    return timeout_text(
        wait, (missing.empty() ? kAllRanksWait : mpi::named_missing(missing) + kMissingRank) + details);
}

std::string lost_ranks_text(const std::vector<int>& ranks) {
    return fmt::format(
        "a rank has ended without notice, or its node has failed; {}. The rank's own output, and its node's "
        "log, may say why",
        mpi::named_missing(ranks));
}

std::string no_answer_of_rank_0_text(const Report& own, ConnectionToRank0 connection) {
    const std::string why =
        connection == ConnectionToRank0::Silent
            ? mpi::named_missing(std::vector{0}) + kMissingRank + ". Rank 0's watchdog does not answer either"
            : "the missing ranks are unknown, because this rank never had a connection to rank 0's watchdog";
    const auto longest = std::ranges::max_element(own.waits, {}, weight_in_message);
    return longest == own.waits.end() ? why : timeout_text(*longest, why);
}

}  // namespace argosy::watch
