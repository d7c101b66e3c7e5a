#include "watch/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "base/program.h"
#include "base/random.h"
#include "base/strict_json.h"

namespace argosy::watch {
namespace {

using LaunchId = LaunchQueue::LaunchId;
using QueueState = LaunchQueue::QueueState;

/// The number of ranks at the start of the list that have equal distances.
size_t leading_progression(const std::vector<int>& ranks) {
    size_t count = std::min<size_t>(ranks.size(), 2);
    while (count < ranks.size() && ranks[count] - ranks[count - 1] == ranks[1] - ranks[0]) ++count;
    return count;
}

/// Whether the list consists of copies of its first `count` ranks, each copy shifted by some distance.
bool repeats(const std::vector<int>& ranks, size_t count) {
    if (ranks.size() % count != 0) return false;
    for (size_t i = count; i < ranks.size(); ++i) {
        if (ranks[i] - ranks[i - i % count] != ranks[i % count] - ranks[0]) return false;
    }
    return true;
}

WaitReport wait_in(const QueueState& state, const WaitLimit& limit) {
    const auto& [id, work, waited_seconds] = *state.under_way;
    return {.key = state.key,
            .operation = operation_name(work.kind, state.name, id),
            .group = state.name,
            .members = compress_ranks(state.members),
            .id = id,
            .work = work,
            .needs = Needs::Launch,
            .waited_seconds = waited_seconds,
            .limit_seconds = limit.seconds,
            .limit_name = limit.setting};
}

}  // namespace

std::string compress_ranks(const std::vector<int>& ranks) {
    if (ranks.empty()) return "";
    if (ranks.size() == 1) return std::to_string(ranks[0]);
    const size_t count = leading_progression(ranks);
    if (!repeats(ranks, count)) return fmt::format("{}", fmt::join(ranks, " "));
    std::vector<int> starts;
    for (size_t i = 0; i < ranks.size(); i += count) starts.push_back(ranks[i]);
    const std::string outer = compress_ranks(starts);
    if (outer.find(' ') != std::string::npos) return fmt::format("{}", fmt::join(ranks, " "));
    const size_t end = std::min(outer.find(':'), outer.size());
    return fmt::format("{}:{}*{}{}", outer.substr(0, end), ranks[1] - ranks[0], count, outer.substr(end));
}

std::vector<int> expand_ranks(const std::string& text) {
    std::vector<int> ranks;
    std::istringstream words(text);
    for (int rank; words >> rank;) ranks.push_back(rank);
    words.clear();
    int stride = 0;
    size_t count = 0;
    for (char colon = 0, times = 0; words >> colon >> stride >> times >> count;) {
        const std::vector<int> inner = ranks;
        if (count > 1 << 24 || inner.size() * count > 1 << 24) throw std::out_of_range("a list of ranks");
        for (size_t i = 1; i < count; ++i) {
            for (const int rank : inner) ranks.push_back(rank + static_cast<int>(i) * stride);
        }
    }
    return ranks;
}

bool RankReport::is_late() const {
    return std::ranges::any_of(waits, &WaitReport::is_late) || (storage && storage->is_late());
}

RankReport RankReport::of(const std::vector<QueueState>& states, const WaitLimit& limit) {
    RankReport report;
    for (const QueueState& state : states) {
        report.queues.push_back({state.key, state.num_begun, state.graph});
        if (state.under_way) report.waits.push_back(wait_in(state, limit));
        if (state.last_id.number < 0 || state.seconds_since_last >= report.seconds_since_last) continue;
        report.seconds_since_last = state.seconds_since_last;
        report.last_operation = operation_name(state.last.kind, state.name, state.last_id);
    }
    std::ranges::sort(report.queues, {}, &QueueProgress::key);
    return report;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LaunchQueue::LaunchId, graph, number)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LaunchQueue::Work, kind, elements)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(QueueProgress, key, num_begun, graph)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WaitReport, key, operation, group, members, id, work, needs,
                                   waited_seconds, limit_seconds, limit_name)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StorageWait, what, waited_seconds, limit_seconds, limit_name)

std::string RankReport::text() const {
    nlohmann::json report = {{"queues", queues}, {"waits", waits}, {"error", on_one_line(error)}};
    if (!last_operation.empty()) {
        report["last_operation"] = last_operation;
        report["seconds_since_last"] = seconds_since_last;
    }
    if (storage) {
        report["storage"] = *storage;
        report["storage"]["what"] = on_one_line(storage->what);
        if (storage->seconds_since_end) report["seconds_since_storage"] = *storage->seconds_since_end;
    }
    return json_text(report);
}

RankReport RankReport::parse(const std::string& text) {
    const nlohmann::json json(parse_json(text, "a report of another rank's watchdog"));
    RankReport report;
    json.at("queues").get_to(report.queues);
    json.at("waits").get_to(report.waits);
    json.at("error").get_to(report.error);
    if (json.contains("last_operation")) {
        json.at("last_operation").get_to(report.last_operation);
        json.at("seconds_since_last").get_to(report.seconds_since_last);
    }
    if (json.contains("storage")) report.storage = json.at("storage").get<StorageWait>();
    if (report.storage && json.contains("seconds_since_storage"))
        report.storage->seconds_since_end = json.at("seconds_since_storage").get<double>();
    std::ranges::sort(report.queues, {}, &QueueProgress::key);
    return report;
}

std::string operation_name(const std::string& kind, const std::string& group, LaunchId id) {
    const std::string of_graph = id.graph == 0 ? "" : fmt::format(" of graph {}", id.graph);
    return fmt::format("{} over {} (operation {}{})", kind, group, id.number, of_graph);
}

uint64_t group_key(const std::string& name, const std::vector<int>& members, int serial) {
    Fnv sum;
    for (const char letter : name) sum.add(letter);
    for (const int member : members) sum.add(member);
    sum.add(serial);
    return sum.hash();
}

}  // namespace argosy::watch
