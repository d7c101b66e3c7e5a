#include "plan/continued_plan.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/error.h"

namespace argosy::plan {
namespace {

struct Line {
    double factor;

    template <class Number>
    void extend(Number& number, Number before) const {
        const double end = static_cast<double>(number) + factor * static_cast<double>(number - before);
        if constexpr (std::is_integral_v<Number>) {
            number = std::max<Number>(0, std::llround(end));
        } else {
            number = std::max<Number>(0, end);
        }
    }
    void extend(comm::MovedBytes& moved, const comm::MovedBytes& before) const {
        extend(moved.sent, before.sent);
        extend(moved.received, before.received);
    }
    /// A key that `before` has not was 0.
    template <class Key, class Number>
    void extend(std::map<Key, Number>& numbers, const std::map<Key, Number>& before) const {
        for (auto& [key, number] : numbers) {
            const auto found = before.find(key);
            extend(number, found == before.end() ? Number() : found->second);
        }
    }
};

void extend(const Line& line, PeakMemory& peak, const PeakMemory& before) {
    line.extend(peak.bytes, before.bytes);
    for (const auto member : {&HeldBytes::weights, &HeldBytes::copies, &HeldBytes::gradients,
                              &HeldBytes::states, &HeldBytes::gathered})
        line.extend(peak.held.*member, before.held.*member);
}

void extend(const Line& line, RankTime& time, const RankTime& before) {
    for (const auto member :
         {&RankTime::compute, &RankTime::optimizer, &RankTime::launches, &RankTime::bubble})
        line.extend(time.*member, before.*member);
    line.extend(time.exposed, before.exposed);
    time.total = time.sum();
}

void extend(const Line& line, std::vector<TensorCollective>& rows,
            const std::vector<TensorCollective>& before) {
    for (size_t i = 0; i < std::min(rows.size(), before.size()); ++i) {
        line.extend(rows[i].number, before[i].number);
        line.extend(rows[i].moved, before[i].moved);
        for (const auto member : {&TensorCollective::seconds, &TensorCollective::exposed_seconds,
                                  &TensorCollective::product_seconds})
            line.extend(rows[i].*member, before[i].*member);
    }
}

}  // namespace

Plan continued(Plan second, const Plan& first, double factor) {
    ARGOSY_CHECK(second.ranks.size() == first.ranks.size(), "plans of {} and {} ranks are on no line",
                 second.ranks.size(), first.ranks.size());
    const Line line{factor};
    for (size_t i = 0; i < second.ranks.size(); ++i) {
        RankPlan& rank = second.ranks[i];
        const RankPlan& before = first.ranks[i];
        extend(line, rank.trace.peak, before.trace.peak);
        line.extend(rank.trace.peer_bytes, before.trace.peer_bytes);
        line.extend(rank.trace.flops, before.trace.flops);
        line.extend(rank.trace.compute_seconds, before.trace.compute_seconds);
        line.extend(rank.trace.moved, before.trace.moved);
        extend(line, rank.time, before.time);
        extend(line, rank.tensor_collectives, before.tensor_collectives);
        line.extend(rank.all_to_all.exposed, before.all_to_all.exposed);
        line.extend(rank.all_to_all.without_overlap, before.all_to_all.without_overlap);
    }
    return second;
}

}  // namespace argosy::plan
