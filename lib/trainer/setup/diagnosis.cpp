#include "setup/options.h"

#include <optional>

#include "base/error.h"
#include "parallel/own_schedule.h"
#include "parallel/transfers.h"

namespace argosy::setup {
namespace {

/// The bubble of the actions of all ranks.
double bubble_of(const parallel::RankActions& actions, const parallel::StageMap& stages) {
    return parallel::simulate_actions(parallel::with_transfers(actions, stages), stages)
        .bubble_share(stages.num_ranks());
}

/// None if the schedule cannot run such a step. Each start of a run asks for many, so only a step of few
/// microbatches is simulated: with more, the ranks wait as long, and compute in proportion.
std::optional<double> bubble_of(const std::string& schedule, int num_stages, int num_ranks,
                                int num_microbatches) {
    // Every schedule fills and drains in the same way with fewer whole rounds of the ranks.
    const int simulated =
        num_microbatches < 8 * num_ranks ? num_microbatches : 4 * num_ranks + num_microbatches % num_ranks;
    const parallel::ScheduleShape shape{num_stages, num_ranks, simulated, parallel::stage_order(schedule)};
    try {
        const double share = bubble_of(parallel::schedule(schedule, shape), shape.stages());
        return share * simulated / (share * simulated + (1 - share) * num_microbatches);
    } catch (const UserError&) {
        return std::nullopt;
    }
}

observe::PipelineFacts pipeline_facts(const train::TrainerOptions& options, int num_ranks) {
    constexpr double kMinGain = 0.02;  // of a schedule that is worth a change
    const auto num_microbatches = static_cast<int>(options.num_microbatches);
    observe::PipelineFacts facts{.schedule = options.schedule, .num_microbatches = options.num_microbatches};
    if (!options.own_schedule.empty()) {
        const parallel::RankActions& own = options.own_schedule;
        facts.schedule = options.own_schedule_path;
        facts.bubble = bubble_of(
            own, parallel::StageMap(parallel::num_stages(own), num_ranks, parallel::stage_order(own)));
    } else {
        const auto num_stages = static_cast<int>(options.stage_layers.size());
        facts.bubble = bubble_of(options.schedule, num_stages, num_ranks, num_microbatches).value_or(0);
        facts.bubble_of_twice = bubble_of(options.schedule, num_stages, num_ranks, 2 * num_microbatches);
    }
    facts.better_bubble = facts.bubble - kMinGain;
    for (const std::string& schedule : parallel::schedule_names()) {
        const int num_stages = num_ranks * parallel::default_stages_per_rank(schedule);
        if (num_stages > options.spec.num_layers) continue;
        const auto bubble = bubble_of(schedule, num_stages, num_ranks, num_microbatches);
        if (!bubble || *bubble >= facts.better_bubble) continue;
        facts.better_schedule = schedule;
        facts.better_bubble = *bubble;
    }
    return facts;
}

}  // namespace

observe::RankTimesOptions rank_times_options(const config::JobConfig& config, const layout::MeshShape& mesh,
                                             const Environment& environment) {
    observe::RankTimesOptions options{.host = environment.node_name(), .mesh = mesh};
    // Without balance, causal attention gives the later parts of a sequence more work.
    if (config.parallelism.context_parallel_load_balancer == layout::ContextBalance::None)
        options.unequal_axes.add(layout::Axis::Context);
    return options;
}

observe::RunFacts run_facts(const config::JobConfig& config, const train::TrainerOptions& options,
                            const layout::MeshShape& mesh, const std::vector<std::string>& slow_settings) {
    observe::RunFacts facts{
        .mesh = mesh,
        .reshards = options.reshard == parallel::Reshard::EveryPass,
        .overlaps_products = options.model.tensor.overlap_products,
        .rotate_method = std::string(name_of(config.parallelism.context_parallel_rotate_method)),
        .saves_async = config.checkpoint.async_mode == config::AsyncMode::Async,
        .checkpoint_interval = config.checkpoint.interval,
        .validation_freq = config.validation.freq,
        .evaluation_freq = config.evaluation.freq,
        .slow_settings = slow_settings};
    const int num_stage_ranks = mesh.degree(layout::Axis::Pipeline);
    if (num_stage_ranks > 1) facts.pipeline = pipeline_facts(options, num_stage_ranks);
    return facts;
}

}  // namespace argosy::setup
