#include "plan/fewer_layers.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace argosy::plan {
namespace {

/// The layers of the stage with the fewest.
int64_t fewest_layers(const train::TrainerOptions& options) {
    const std::vector<int>& stages = options.stage_layers;
    return stages.empty() ? options.spec.num_layers : *std::ranges::min_element(stages);
}

}  // namespace

FewerLayers fewer_layers(const train::TrainerOptions& options) {
    constexpr int64_t kKept = 3;
    const auto& experts = options.spec.experts;
    if (experts && !experts->dense_layers.empty()) return {};
    const int64_t period =
        std::lcm(std::max<int64_t>(1, options.spec.full_layer_period), experts ? experts->period : 1);
    const int64_t many = (fewest_layers(options) - kKept) / period * period, few = many - period;
    if (few < kKept + period) return {};  // the two plans would have as many layers as the stage
    return {many, few};
}

void remove_layers(train::TrainerOptions& options, int64_t count) {
    options.spec.num_layers -= count * std::max<int64_t>(1, std::ssize(options.stage_layers));
    for (int& layers : options.stage_layers) layers -= static_cast<int>(count);
}

void keep_stages(train::TrainerOptions& options, int count) {
    std::vector<int>& stages = options.stage_layers;
    std::vector<int> inner(stages.begin() + 1, stages.end() - 1);
    std::ranges::sort(inner, std::greater<>());
    std::vector<int> kept(count, inner[inner.size() / 2]);
    kept.front() = stages.front();
    kept[1] = inner.front();
    kept.back() = stages.back();
    stages = std::move(kept);
    options.spec.num_layers = std::accumulate(stages.begin(), stages.end(), int64_t{0});
}

}  // namespace argosy::plan
