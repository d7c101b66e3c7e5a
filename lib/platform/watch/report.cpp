#include "watch/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/fnv.h"
#include "base/program.h"

namespace argosy::watch {
namespace {

using LaunchId = LaunchQueue::LaunchId;
using Work = LaunchQueue::Work;
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

class Fields {
  public:
    explicit Fields(const std::string& line) {
        std::istringstream text(line);
        for (std::string field; std::getline(text, field, '\t');) fields_.push_back(field);
    }
    std::string text() { return fields_.at(next_++); }
    int64_t integer() { return std::stoll(text()); }
    uint64_t key() { return std::stoull(text(), nullptr, 16); }
    double number() { return std::stod(text()); }
    LaunchId id() {
        const int64_t graph = integer();
        return {graph, integer()};
    }

  private:
    std::vector<std::string> fields_;
    size_t next_ = 0;
};

std::string line_of(const WaitReport& wait) {
    return fmt::format("w\t{:x}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", wait.key, wait.operation,
                       wait.group, wait.members, wait.id.graph, wait.id.number, wait.work.kind,
                       wait.work.elements, static_cast<int>(wait.needs), wait.waited_seconds,
                       wait.limit_seconds, wait.limit_name);
}

WaitReport wait_of(Fields fields) {
    WaitReport wait;
    wait.key = fields.key();
    wait.operation = fields.text();
    wait.group = fields.text();
    wait.members = fields.text();
    wait.id = fields.id();
    wait.work.kind = fields.text();
    wait.work.elements = fields.integer();
    wait.needs = fields.integer() == 0 ? Needs::Launch : Needs::Attention;
    wait.waited_seconds = fields.number();
    wait.limit_seconds = fields.number();
    wait.limit_name = fields.text();
    return wait;
}

/// A text with paths, which may hold any character, as a field.
std::string tabless(const std::string& text) {
    std::string field = on_one_line(text);
    std::ranges::replace(field, '\t', ' ');
    return field;
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

std::string RankReport::text() const {
    std::string text = fmt::format("e\t{}\n", on_one_line(error));
    if (!last_operation.empty()) text += fmt::format("l\t{}\t{}\n", last_operation, seconds_since_last);
    for (const auto& [key, num_begun, graph] : queues) {
        text += fmt::format("q\t{:x}\t{}\t{}\t{}\n", key, num_begun, graph.graph, graph.number);
    }
    for (const WaitReport& one : waits) text += line_of(one);
    if (storage) {
        text +=
            fmt::format("s\t{}\t{}\t{}\t{}\t{}\n", tabless(storage->what), storage->waited_seconds,
                        storage->limit_seconds, storage->limit_name, storage->seconds_since_end.value_or(-1));
    }
    return text;
}

RankReport RankReport::parse(const std::string& text) {
    RankReport report;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        Fields fields(line.substr(std::min<size_t>(2, line.size())));
        switch (line.empty() ? ' ' : line[0]) {
            case 'e':
                if (line.size() > 2) report.error = fields.text();
                break;
            case 'l':
                report.last_operation = fields.text();
                report.seconds_since_last = fields.number();
                break;
            case 'q': {
                const uint64_t key = fields.key();
                const int64_t num_begun = fields.integer();
                report.queues.push_back({key, num_begun, fields.id()});
                break;
            }
            case 's':
                report.storage.emplace();
                report.storage->what = fields.text();
                report.storage->waited_seconds = fields.number();
                report.storage->limit_seconds = fields.number();
                report.storage->limit_name = fields.text();
                if (const double since = fields.number(); since >= 0)
                    report.storage->seconds_since_end = since;
                break;
            case 'w':
                report.waits.push_back(wait_of(std::move(fields)));
                break;
            default:
                throw std::invalid_argument("a report of another rank's watchdog");
        }
    }
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
