#include "plan/fewer_layers.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "parallel/schedule.h"

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
    const int64_t period = std::max<int64_t>(1, options.spec.full_layer_period);
    const int64_t many = (fewest_layers(options) - kKept) / period * period, few = many - period;
    if (few < kKept + period) return {};  // the two plans would have as many layers as the stage
    return {many, few};
}

void remove_layers(train::TrainerOptions& options, int64_t count) {
    options.spec.num_layers -= count * std::max<int64_t>(1, std::ssize(options.stage_layers));
    for (int& layers : options.stage_layers) layers -= static_cast<int>(count);
}

void keep_stages(train::TrainerOptions& options, int num_pipeline_ranks, int num_kept_ranks) {
    std::vector<int>& layers = options.stage_layers;
    const parallel::StageOrder order = parallel::stage_order(options.schedule);
    const int num_stages = static_cast<int>(layers.size()), last = num_pipeline_ranks - 1;
    const parallel::StageMap all(num_stages, num_pipeline_ranks, order),
        kept(num_stages / num_pipeline_ranks * num_kept_ranks, num_kept_ranks, order);
    const auto layers_of = [&](int rank) {
        int sum = 0;
        for (const int stage : all.stages_of(rank)) sum += layers[stage];
        return sum;
    };
    std::vector<int> inner(last - 1);
    std::iota(inner.begin(), inner.end(), 1);
    std::ranges::stable_sort(inner, std::greater<>(), layers_of);
    const auto source_of = [&](int kept_rank) {
        if (kept_rank == 0) return 0;
        if (kept_rank == num_kept_ranks - 1) return last;
        return kept_rank == 1 ? inner.front() : inner[inner.size() / 2];
    };
    std::vector<int> kept_layers;
    for (int stage = 0; stage < kept.num_stages(); ++stage) {
        const int source = source_of(kept.rank_of(stage));
        kept_layers.push_back(layers[all.stages_of(source)[kept.local_index(stage)]]);
    }
    layers = std::move(kept_layers);
    options.spec.num_layers = std::accumulate(layers.begin(), layers.end(), int64_t{0});
}

}  // namespace argosy::plan
