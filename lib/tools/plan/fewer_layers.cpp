#include "plan/fewer_layers.h"

#include <algorithm>

namespace argosy::plan {
namespace {

/// The layers of the stage with the fewest.
int64_t fewest_layers(const train::TrainerOptions& options) {
    const std::vector<int>& stages = options.stage_layers;
    return stages.empty() ? options.spec.num_layers : *std::ranges::min_element(stages);
}

/// A line through two points, `factor` times their distance behind the second one.
struct Line {
    double factor;

    template <class Number>
    void extend(Number& number, Number before) const {
        const double more = factor * static_cast<double>(number - before);
        number = std::max(Number(0), static_cast<Number>(static_cast<double>(number) + more));
    }
};

void extend(const Line& line, HeldBytes& held, const HeldBytes& before) {
    for (const auto member : {&HeldBytes::weights, &HeldBytes::copies, &HeldBytes::gradients,
                              &HeldBytes::states, &HeldBytes::gathered})
        line.extend(held.*member, before.*member);
}

void extend(const Line& line, RankTime& time, const RankTime& before) {
    line.extend(time.compute, before.compute);
    line.extend(time.optimizer, before.optimizer);
    line.extend(time.bubble, before.bubble);
    time.total = time.compute + time.optimizer + time.bubble;
    for (auto& [group, seconds] : time.exposed) {
        const auto found = before.exposed.find(group);
        line.extend(seconds, found == before.exposed.end() ? 0.0 : found->second);
        time.total += seconds;
    }
}

}  // namespace

FewerLayers fewer_layers(const train::TrainerOptions& options) {
    constexpr int64_t kKept = 3;
    const int64_t period = std::max<int64_t>(1, options.spec.full_layer_period);
    const int64_t many = (fewest_layers(options) - kKept) / period * period, few = many - period;
    if (few < kKept + period) return {};  // the two plans would have as many layers as the stage
    return {many, few};
}

void remove_layers(train::TrainerOptions& options, int64_t count) {
    options.spec.num_layers -= count * std::max<int64_t>(1, std::ssize(options.stage_layers));
    for (int& layers : options.stage_layers) layers -= static_cast<int>(count);
}

Plan with_all_layers(Plan deeper, const Plan& shallower, const FewerLayers& removed) {
    const Line line{static_cast<double>(removed.few) / static_cast<double>(removed.many - removed.few)};
    deeper.seconds = 0;
    for (size_t i = 0; i < deeper.ranks.size(); ++i) {
        auto& [trace, time] = deeper.ranks[i];
        const auto& [trace_before, time_before] = shallower.ranks[i];
        line.extend(trace.peak.bytes, trace_before.peak.bytes);
        extend(line, trace.peak.held, trace_before.peak.held);
        extend(line, time, time_before);
        deeper.seconds = std::max(deeper.seconds, time.total);
    }
    return deeper;
}

}  // namespace argosy::plan
