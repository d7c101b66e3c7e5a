#include "base/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace argosy {
namespace {

std::string json_text(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Timeline::Span::Span(Timeline& timeline, const std::string& name)
    : timeline_(timeline.takes_spans() ? &timeline : nullptr) {
    if (timeline_) timeline_->open(name, /*is_operation=*/false);
}

Timeline::Span::~Span() {
    if (!timeline_) return;
    timeline_->close_operation();
    timeline_->close();
}

/// The fields that every event has.
std::string Timeline::event(char phase, const std::string& name, double us) const {
    return fmt::format(R"("ph":"{}","name":{},"pid":{},"tid":0,"ts":{:.3f})", phase, json_text(name), rank_,
                       us);
}

void Timeline::start(double clock_offset, const std::string& id) {
    recording_ = true;
    id_ = id;
    clock_offset_ = clock_offset;
}

double Timeline::now_us() const { return 1e6 * (seconds_now() + clock_offset_); }

void Timeline::add(const std::string& event) {
    events_ += events_.empty() ? "{" : ",\n{";
    events_ += event;
    events_ += "}";
}

void Timeline::open(std::string name, bool is_operation) {
    if (sink_.begin) sink_.begin(name.c_str());
    open_.push_back({std::move(name), now_us(), is_operation});
}

void Timeline::close() {
    const Open span = std::move(open_.back());
    open_.pop_back();
    if (sink_.end) sink_.end();
    if (recording_)
        add(event('X', span.name, span.begin) + fmt::format(R"(,"dur":{:.3f})", now_us() - span.begin));
}

void Timeline::close_operation() {
    if (!open_.empty() && open_.back().is_operation) close();
}

void Timeline::next_operation(std::string name) {
    if (!takes_spans()) return;
    close_operation();
    open(std::move(name), /*is_operation=*/true);
}

void Timeline::memory(int64_t bytes) {
    if (!recording_) return;
    add(event('C', "tensors", now_us()) + fmt::format(R"(,"args":{{"bytes":{}}})", bytes));
}

uint64_t Timeline::launched(const std::string& name) {
    if (!recording_) return 0;
    under_way_.emplace_back(++num_launched_, name);
    add(event('b', name, now_us()) + fmt::format(R"(,"cat":"between ranks","id":{})", num_launched_));
    return num_launched_;
}

void Timeline::landed(uint64_t number) {
    const auto found = std::ranges::find(under_way_, number, [](const auto& launch) { return launch.first; });
    if (!recording_ || found == under_way_.end()) return;
    add(event('e', found->second, now_us()) + fmt::format(R"(,"cat":"between ranks","id":{})", number));
    under_way_.erase(found);
}

std::string Timeline::stop() {
    ARGOSY_CHECK(open_.empty(), "a span of the timeline is still open: {}", open_.back().name);
    while (!under_way_.empty()) landed(under_way_.back().first);
    recording_ = false;
    return fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"id":{2}}},"traceEvents":[
{{"ph":"M","name":"process_name","pid":{0},"tid":0,"args":{{"name":"rank {0}"}}}},
{1}]}}
)",
                       rank_, std::exchange(events_, {}), json_text(id_));
}

}  // namespace argosy
