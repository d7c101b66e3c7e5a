#include "plan/all_to_all.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace argosy::plan {
namespace {

/// Muon sends its matrices by the same operation.
bool is_all_to_all(const Launch& launch) {
    return launch.kind == comm::OpKind::AllToAll && launch.purpose.work == std::string_view("experts");
}

double seconds_of(const RankTrace& trace, const RankTime& time) {
    double seconds = 0;
    for (size_t i = 0; i < trace.launches.size(); ++i)
        seconds += is_all_to_all(trace.launches[i]) ? time.exposed_of_launches[i] : 0;
    return seconds;
}

/// The trace with the wait for each all-to-all directly after its launch.
RankTrace without_overlap(const RankTrace& trace) {
    RankTrace changed{.rank = trace.rank, .launches = trace.launches};
    for (const Event& event : trace.events) {
        const bool is_moved =
            event.kind != Event::Kind::Compute && is_all_to_all(trace.launches[event.launch]);
        if (is_moved && event.kind == Event::Kind::Wait) continue;
        changed.events.push_back(event);
        if (is_moved) changed.events.push_back({.kind = Event::Kind::Wait, .launch = event.launch});
    }
    return changed;
}

}  // namespace

std::vector<AllToAllWaits> all_to_all_waits(std::span<const RankTrace> traces,
                                            std::span<const RankTime> times) {
    const auto has_one = [](const RankTrace& trace) {
        return std::ranges::any_of(trace.launches, is_all_to_all);
    };
    if (std::ranges::none_of(traces, has_one)) return {};
    std::vector<RankTrace> changed;
    for (const RankTrace& trace : traces) changed.push_back(without_overlap(trace));
    const std::vector<RankTime> without = simulate_step(changed);
    std::vector<AllToAllWaits> waits;
    for (size_t i = 0; i < traces.size(); ++i)
        waits.push_back({seconds_of(traces[i], times[i]), seconds_of(changed[i], without[i])});
    return waits;
}

std::string text_of(const AllToAllWaits& waits, int rank) {
    if (waits.without_overlap == 0) return "";
    std::string text = fmt::format("experts   rank {} waits {:.3g} s for all-to-alls", rank, waits.exposed);
    if (waits.without_overlap > waits.exposed)
        text += fmt::format("; {:.3g} s without the shared experts beside them", waits.without_overlap);
    return text + "\n";
}

}  // namespace argosy::plan
