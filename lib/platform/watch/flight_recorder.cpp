#include "watch/flight_recorder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/output.h"
#include "base/program.h"
#include "base/raw_file.h"
#include "watch/report.h"

namespace argosy::watch {
namespace {

using Way = FlightOp::Way;
using Json = nlohmann::ordered_json;

uint64_t mixed(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15;
    return hash ^ hash >> 32;
}

const char* name_of(ElementType type) {
    constexpr const char* kNames[] = {"int8", "uint8", "int32", "uint32",   "int64",    "uint64", "fp16",
                                      "fp32", "fp64",  "bf16",  "fp8_e4m3", "fp8_e5m2", "uint16"};
    return kNames[static_cast<int>(type)];
}

std::string in_words(const FlightOp& op) {
    if (op.elements < 0) return op.kind;
    const bool has_root = op.way == Way::Collective && op.peer >= 0;
    return fmt::format("{} of {} {}{}", op.kind, op.elements, name_of(op.type),
                       has_root ? fmt::format(" from rank {}", op.peer) : "");
}

const char* name_of(FlightState state) {
    constexpr const char* kNames[] = {"under way", "ended", "in a graph"};
    return kNames[static_cast<int>(state)];
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// Names in a list of objects, one object in a line.
std::string json_list(const char* name, const std::vector<Json>& objects) {
    std::string text = fmt::format("\"{}\": [", name);
    for (const Json& object : objects) {
        text += &object == objects.data() ? "\n" : ",\n";
        text += object.dump(-1, ' ', true, Json::error_handler_t::replace);
    }
    return text + "]";
}

/// Throws std::exception on failure.
void write_whole(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    const std::filesystem::path partial = path.string() + ".partial";
    write_text(partial, text);
    failpoint("flight_half_written");
    std::filesystem::rename(partial, path);
}

}  // namespace

void FlightSpan::set_ended() const {
    if (!recorder) return;
    const std::lock_guard lock(recorder->mutex_);
    const int64_t oldest = std::max<int64_t>(begin, recorder->num_entries_ - FlightRecorder::kMaxEntries);
    for (int64_t i = oldest; i < end; ++i) {
        recorder->entries_[i % FlightRecorder::kMaxEntries].state = FlightState::Ended;
    }
}

int FlightRecorder::open(const std::string& name, const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    const uint64_t key = group_key(name, members, num_groups_[{name, members}]++);
    const auto number = static_cast<int>(groups_.size());
    groups_.push_back({name, compress_ranks(members), key, static_cast<int>(streams_.size()), {}});
    streams_.push_back({.key = key, .group = number});
    return number;
}

int FlightRecorder::stream_of(int group, const FlightOp& op) {
    if (op.way == Way::Collective) return groups_[group].collectives;
    const auto [found, is_new] =
        groups_[group].messages.try_emplace({op.way, op.peer}, static_cast<int>(streams_.size()));
    if (is_new) {
        const int sender = op.way == Way::Send ? rank_ : op.peer;
        const int receiver = op.way == Way::Send ? op.peer : rank_;
        const uint64_t key = mixed(mixed(groups_[group].key, sender), receiver);
        streams_.push_back({.key = key, .group = group, .sender = sender, .receiver = receiver});
    }
    return found->second;
}

void FlightRecorder::add(int group, const FlightOp& op, FlightSpan& span, FlightState state) {
    const double now = seconds_now();
    const std::lock_guard lock(mutex_);
    const int number = stream_of(group, op);
    Entry& entry = entries_[num_entries_ % kMaxEntries];
    entry = {op, state, number, streams_[number].count++, now};
    if (!span.recorder) span = {this, num_entries_, num_entries_};
    span.end = ++num_entries_;
}

const char* FlightRecorder::kept(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return texts_.insert(text).first->c_str();
}

/// The oldest entry first.
template <class Visit>
void FlightRecorder::for_each_entry(Visit visit) const {
    for (int64_t i = std::max<int64_t>(0, num_entries_ - kMaxEntries); i < num_entries_; ++i) {
        visit(entries_[i % kMaxEntries]);
    }
}

std::string FlightRecorder::streams() const {
    const double now = seconds_now();
    const std::lock_guard lock(mutex_);
    std::vector<std::string> lines(streams_.size());
    for_each_entry([&](const Entry& entry) {
        const Stream& stream = streams_[entry.stream];
        std::string& line = lines[entry.stream];
        if (line.empty()) {
            line = stream.sender < 0 ? fmt::format("{:x}\tcollective\tover ", stream.key)
                                     : fmt::format("{:x}\tmessage\tfrom rank {} to rank {} over ", stream.key,
                                                   stream.sender, stream.receiver);
            line += fmt::format("{}\t{}", on_one_line(groups_[stream.group].name), entry.number);
        }
        line += fmt::format("\t{:.3f} {}", now - entry.at_seconds, on_one_line(in_words(entry.op)));
    });
    std::erase(lines, "");
    return fmt::format("{}\n", fmt::join(lines, "\n"));
}

std::vector<StreamOps> parse_streams(const std::string& text) {
    std::vector<StreamOps> streams;
    for (const std::string& line : lines_of(text)) {
        if (line.empty()) continue;
        std::istringstream fields(line);
        StreamOps& stream = streams.emplace_back();
        std::string key, first;
        std::getline(fields, key, '\t');
        std::getline(fields, stream.noun, '\t');
        std::getline(fields, stream.place, '\t');
        std::getline(fields, first, '\t');
        stream.key = std::stoull(key, nullptr, 16);
        stream.first = std::stoll(first);
        for (std::string op; std::getline(fields, op, '\t');) {
            size_t end = 0;
            const double seconds_ago = std::stod(op, &end);
            stream.ops.push_back({seconds_ago, op.substr(std::min(end + 1, op.size()))});
        }
    }
    return streams;
}

std::string FlightRecorder::json(const std::string& hang, int num_ranks) const {
    const double now = seconds_now();
    const std::lock_guard lock(mutex_);
    std::vector<Json> groups, operations;
    for (const Group& group : groups_) groups.push_back({{"name", group.name}, {"members", group.members}});
    for_each_entry([&](const Entry& entry) {
        Json one = {{"group", streams_[entry.stream].group},
                    {"number", entry.number},
                    {"kind", entry.op.kind},
                    {"state", name_of(entry.state)},
                    {"seconds_ago", std::round((now - entry.at_seconds) * 1e6) / 1e6}};
        if (entry.op.elements >= 0) {
            one["elements"] = entry.op.elements;
            one["type"] = name_of(entry.op.type);
        }
        if (entry.op.peer >= 0) one["peer"] = entry.op.peer;
        operations.push_back(std::move(one));
    });
    Json head = {{"format", "argosy flight"}, {"version", 1},        {"hang", hang},       {"rank", rank_},
                 {"ranks", num_ranks},        {"host", host_name()}, {"process", getpid()}};
    std::string text = head.dump(-1, ' ', true, Json::error_handler_t::replace);
    text.back() = ',';  // in place of the closing brace
    return fmt::format("{}\n{},\n{}}}\n", text, json_list("groups", groups),
                       json_list("operations", operations));
}

bool FlightFile::begin(std::string text, std::function<void()> finished) {
    if (folder_.empty() || (writing_ && !writing_->done)) return false;
    writing_ = std::make_shared<Writing>();
    const std::filesystem::path path = folder_ / fmt::format("rank-{}.json", rank_);
    std::thread([path, writing = writing_, text = std::move(text), finished = std::move(finished)] {
        try {
            write_whole(path, text);
        } catch (const std::exception& error) {
            writing->error = on_one_line(error.what());
        }
        writing->done = true;
        finished();
    }).detach();
    return true;
}

}  // namespace argosy::watch
