#include "watch/root_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/strict_json.h"
#include "base/text.h"
#include "mpi/start_up.h"

namespace argosy::watch {
namespace {

using LaunchId = LaunchQueue::LaunchId;

constexpr size_t kMaxOtherWaits = 4, kMaxOtherOperations = 3;

constexpr const char* kMissingRank =
    ". A missing rank is dead, stuck or much slower; its own message, if any, says why";
constexpr const char* kAllRanksWait =
    "all ranks are waiting: one of them came too late, or they wait for different operations, or the "
    "network between them does not work";

constexpr const char* kDifferentOperations = "ranks have submitted different operations: ";

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

    /// Whether a wait for the file system explains why a rank has not done what others wait for. After its
    /// end it does as long as the others' waits, without its time, are within their limits.
    bool explains(const std::optional<StorageWait>& storage) const {
        if (!storage || !storage->is_long()) return false;
        const double stood_seconds = storage->waited_seconds, since = storage->seconds_since_end.value_or(0);
        return !storage->seconds_since_end || std::ranges::all_of(waiting_, [&](const WaitingRank& one) {
            return std::max(one.wait->waited_seconds - stood_seconds, since) <= one.wait->limit_seconds;
        });
    }

    /// Whether a wait for other ranks is late.
    bool any_late() const {
        return std::ranges::any_of(waiting_, [](const auto& one) { return one.wait->is_late(); });
    }

    /// The missing ranks. The search begins with the late waits, or with all waits if none is late.
    std::vector<int> missing() const {
        const bool any_late = this->any_late();
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
            text += fmt::format("{}: rank {}", operation, listed(ranks));
        }
        return text;
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
    bool is_missed(const RankReport& report, uint64_t key) const {
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

/// "rank 0, 4 (writing 'run/metrics.jsonl' for 900 s)", about the longest of these waits. Behind a wait that
/// has ended: "for 120 s, until 3 s ago".
std::string text_of_storage(const Reports& reports, const std::vector<int>& ranks) {
    const auto of = [&](int rank) -> const StorageWait& { return *reports.by_rank.at(rank).storage; };
    const int longest =
        *std::ranges::max_element(ranks, {}, [&](int rank) { return of(rank).waited_seconds; });
    const auto since = of(longest).seconds_since_end;
    return fmt::format("rank {} ({} for {:.0f} s{})", listed(ranks), of(longest).what,
                       of(longest).waited_seconds, since ? fmt::format(", until {:.0f} s ago", *since) : "");
}

std::vector<int> ranks_late_on_storage(const Reports& reports) {
    std::vector<int> ranks;
    for (const auto& [rank, report] : reports.by_rank)
        if (report.storage && report.storage->is_late()) ranks.push_back(rank);
    return ranks;
}

/// The message that ends the job. jobs/shell/requeue.sh excludes the nodes of ranks that a message calls
/// missing.
std::string storage_text(const Reports& reports, const std::vector<int>& ranks,
                         const std::string& limit_name) {
    return fmt::format(
        "waiting for the file system: {}; it has not answered, so the run ends ({} sets the limit). No node "
        "is at fault: check the storage of job.dump_folder and of the token files",
        text_of_storage(reports, ranks), limit_name);
}

/// What is the same on all ranks of a stream: a message is sent on one side and received on the other.
std::string_view essence(const StreamOps& stream, std::string_view what) {
    return stream.noun == "message" ? what.substr(std::min(what.find(" of "), what.size())) : what;
}

/// The number of the first operation of each stream on which ranks differ, by the stream's key.
std::map<uint64_t, int64_t> first_differences(const std::map<int, std::vector<StreamOps>>& by_rank) {
    std::unordered_map<uint64_t, std::unordered_map<int64_t, std::string_view>> seen;
    std::map<uint64_t, int64_t> differences;
    for (const auto& [rank, streams] : by_rank) {
        for (const StreamOps& stream : streams) {
            auto& seen_in_stream = seen[stream.key];
            for (int64_t number = stream.first; const StreamOps::One& op : stream.ops) {
                const std::string_view own = essence(stream, op.what);
                if (seen_in_stream.try_emplace(number, own).first->second != own) {
                    const auto [first, is_new] = differences.try_emplace(stream.key, number);
                    first->second = std::min(first->second, number);
                }
                ++number;
            }
        }
    }
    return differences;
}

/// "rank 0, 1" or "rank 0 and 6 others".
std::string some_of(const std::vector<int>& ranks) {
    constexpr size_t kMaxNamed = 4;
    return ranks.size() <= kMaxNamed ? "rank " + listed(ranks)
                                     : fmt::format("rank {} and {} others", ranks[0], ranks.size() - 1);
}

/// Describes the operations that ranks have in one place of a stream; ranks_of: the ranks by operation.
std::string text_of(const std::string& place, const std::map<std::string, std::vector<int>>& ranks_of) {
    const auto usual = std::ranges::max_element(
        ranks_of, {}, [](const auto& one) { return std::pair(one.second.size(), -one.second[0]); });
    std::string text;
    size_t num_left = kMaxOtherOperations;
    for (auto other = ranks_of.begin(); other != ranks_of.end() && num_left > 0; ++other) {
        if (other == usual) continue;
        --num_left;
        text +=
            fmt::format("{}{} submitted {}", text.empty() ? "" : "; ", some_of(other->second), other->first);
    }
    return fmt::format("{} as {}, where {} submitted {}", text, place, some_of(usual->second), usual->first);
}

std::string timeout_text(const WaitReport& wait, const std::string& why) {
    return fmt::format("{} of ranks {}: no answer in {} s; {} ({} sets the limit)", wait.operation,
                       listed(expand_ranks(wait.members)), wait.limit_seconds, why, wait.limit_name);
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
    std::vector<int> missing = analysis.missing(), on_storage;
    std::erase_if(missing, [&](int rank) {
        const auto report = reports.by_rank.find(rank);
        if (report == reports.by_rank.end() || !analysis.explains(report->second.storage)) return false;
        on_storage.push_back(rank);
        return true;
    });
    const std::vector<int> late_on_storage = ranks_late_on_storage(reports);
    if (!any_error && !late_on_storage.empty() && (missing.empty() || !analysis.any_late())) {
        const StorageWait& one = *reports.by_rank.at(late_on_storage.front()).storage;
        return RootCause{.cause = {.storage = storage_text(reports, late_on_storage, one.limit_name)}};
    }
    if (!any_error && missing.empty() && !on_storage.empty()) return std::nullopt;  // within its limit
    RootCause found{.cause = {.missing = std::move(missing)}};
    if (const WaitingRank* const longest = analysis.longest_wait()) {
        found.reporter = longest->rank;
        found.wait = *longest->wait;
        if (!any_error) found.cause.details = analysis.other_waits(*longest->wait);
        found.cause.details += analysis.last_operation_of(found.cause.missing);
    }
    if (!on_storage.empty())
        found.cause.details += ". Waits for the file system: " + text_of_storage(reports, on_storage);
    if (any_error) found.error = fmt::format("rank {} reports: {}", failed->first, failed->second.error);
    return found;
}

std::string RootCause::message() const {
    if (!cause.storage.empty()) return cause.storage;
    if (error.empty()) return wait ? timeout_text(*wait, cause) : "";
    std::string text = error;
    if (!cause.missing.empty()) text += "; " + mpi::named_missing(cause.missing);
    if (!cause.difference.empty())
        text += fmt::format(". Also, {}{}", kDifferentOperations, cause.difference);
    return text + cause.details;
}

std::string timeout_text(const WaitReport& wait, const WaitCause& cause) {
    std::string why =
        cause.missing.empty() ? kAllRanksWait : mpi::named_missing(cause.missing) + kMissingRank;
    if (!cause.difference.empty()) {
        why = (cause.missing.empty() ? "" : why + ". Also, ") + kDifferentOperations + cause.difference;
    }
    return timeout_text(wait, why + cause.details);
}

std::string RootCause::text() const {
    return json_text(nlohmann::json{{"reporter", reporter},
                                    {"missing", compress_ranks(cause.missing)},
                                    {"difference", cause.difference},
                                    {"details", cause.details}});
}

RootCause RootCause::parse(const std::string& text) {
    const nlohmann::json json(parse_json(text, "the root cause that rank 0 sends"));
    RootCause found;
    json.at("reporter").get_to(found.reporter);
    found.cause.missing = expand_ranks(json.at("missing").get<std::string>());
    json.at("difference").get_to(found.cause.difference);
    json.at("details").get_to(found.cause.details);
    return found;
}

std::string text_of_first_difference(const std::map<int, std::vector<StreamOps>>& by_rank) {
    std::string text;
    double oldest = -1;
    for (const auto& [key, number] : first_differences(by_rank)) {
        std::map<std::string, std::vector<int>> ranks_of;
        std::string place;
        double seconds_ago = 0;
        int64_t first_kept = 0;  // by all ranks
        for (const auto& [rank, streams] : by_rank) {
            const auto stream = std::ranges::find(streams, key, &StreamOps::key);
            if (stream == streams.end()) continue;
            first_kept = std::max(first_kept, stream->first);
            if (number < stream->first) continue;
            const int64_t index = number - stream->first;
            if (index >= std::ssize(stream->ops)) continue;
            const StreamOps::One& op = stream->ops[index];
            ranks_of[op.what].push_back(rank);
            seconds_ago = std::max(seconds_ago, op.seconds_ago);
            place = fmt::format("{} {} {}", stream->noun, number, stream->place);
        }
        if (seconds_ago <= oldest) continue;
        oldest = seconds_ago;
        text = text_of(place, ranks_of);
        if (first_kept > 0) text += fmt::format(" (not all ranks have kept those before {})", first_kept);
    }
    return text;
}

std::string text_of_files(const std::filesystem::path& folder, const Reports& reports,
                          const std::map<int, std::string>& files) {
    if (folder.empty()) return "";
    std::string text = fmt::format(". The last operations of the ranks are in {}", folder.string());
    for (const auto& [rank, report] : reports.by_rank) {
        const auto file = files.find(rank);
        if (file == files.end()) return text + fmt::format("; rank {} has not written its file yet", rank);
        if (!file->second.empty()) return text + fmt::format("; rank {} has no file: {}", rank, file->second);
    }
    return text;
}

std::string lost_ranks_text(const std::vector<int>& ranks) {
    return fmt::format(
        "a rank has ended without notice, or its node has failed; {}. The rank's own output, and its node's "
        "log, may say why",
        mpi::named_missing(ranks));
}

std::string no_answer_of_rank_0_text(const RankReport& own, const std::vector<int>& silent) {
    const std::string why =
        !silent.empty()
            ? mpi::named_missing(silent) + kMissingRank + ". Rank 0's watchdog does not answer either"
            : "the missing ranks are unknown, because this rank never had a connection to rank 0's watchdog";
    const auto longest = std::ranges::max_element(own.waits, {}, weight_in_message);
    return longest == own.waits.end() ? why : timeout_text(*longest, why);
}

}  // namespace argosy::watch
