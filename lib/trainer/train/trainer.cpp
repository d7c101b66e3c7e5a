#include "train/trainer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "parallel/own_schedule.h"
#include "parallel/transfers.h"

namespace argosy::train {
namespace {

using layout::Axis;

/// Throws UserError unless the sequence can be cut over the context axis, and each rank of the tensor axis
/// gets a token of a microbatch.
void check_rows(const parallel::ModelOptions& model, int context_degree, int tensor_degree) {
    const int num_chunks = context_degree * layout::chunks_per_rank(model.context.balance);
    if (context_degree > 1 && model.seq_len % num_chunks != 0) {
        throw UserError(
            "training.seq_len = {} does not divide into {} equal chunks (context_parallel_degree = {} "
            "and its load balancer); make it a multiple of {}",
            model.seq_len, num_chunks, context_degree, num_chunks);
    }
    const int64_t tokens = model.microbatch_size * (model.seq_len / context_degree);
    if (layout::chunk(tokens, tensor_degree, tensor_degree - 1).size > 0) return;
    throw UserError(
        "a microbatch of {} x {} = {} tokens has none for some of the {} ranks of "
        "parallelism.tensor_parallel_degree; make training.seq_len larger",
        model.microbatch_size, model.seq_len / context_degree, tokens, tensor_degree);
}

parallel::LoweringOptions lowering_options(const TrainerOptions& options, const comm::Mesh& mesh,
                                           const parallel::ModelPlacement& placement) {
    return {
        .stages = parallel::stage_units(placement),
        .reshard = options.reshard,
        .reduce_after = parallel::reduce_after(mesh.shape()),
        .recompute = options.recompute,
        .sums_in_place = !options.model.precision.bf16_gradients,
    };
}

parallel::StageOrder stage_order(const TrainerOptions& options, int num_ranks) {
    const auto& own = options.own_schedule;
    if (own.empty()) return parallel::stage_order(options.schedule);
    // check_actions() refuses another number of rows, in any order of stages.
    return std::cmp_equal(own.size(), num_ranks) ? parallel::stage_order(own) : parallel::StageOrder::Loop;
}

/// The actions of all pipeline ranks with their transfers. Throws UserError for a schedule of one's own that
/// is incomplete or deadlocks.
parallel::RankActions make_actions(const TrainerOptions& options, const parallel::ScheduleShape& shape) {
    const auto& own = options.own_schedule;
    if (own.empty()) return with_transfers(parallel::schedule(options.schedule, shape), shape.stages());
    check_actions(own, shape, options.own_schedule_path);
    parallel::RankActions actions = with_transfers(own, shape.stages());
    const std::string deadlock = simulate_actions(actions, shape.stages()).deadlock;
    if (!deadlock.empty()) {
        throw UserError(
            "{} deadlocks: {}; change the order of these actions: an F waits for the F of the stage before, "
            "a B or I for that of the stage after",
            options.own_schedule_path, deadlock);
    }
    return actions;
}

parallel::ScheduleShape schedule_shape(const TrainerOptions& options,
                                       const parallel::ModelPlacement& placement) {
    return {.num_stages = placement.stages.num_stages(),
            .num_ranks = placement.stages.num_ranks(),
            .num_microbatches = static_cast<int>(options.num_microbatches),
            .order = stage_order(options, placement.stages.num_ranks())};
}

parallel::Program make_program(const TrainerOptions& options, const comm::Mesh& mesh,
                               const parallel::ModelPlacement& placement) {
    const parallel::RankActions actions = make_actions(options, schedule_shape(options, placement));
    return parallel::lower(actions[mesh.coordinate(Axis::Pipeline)],
                           lowering_options(options, mesh, placement));
}

/// The forwards of all pipeline ranks with their transfers.
parallel::RankActions forward_actions(const parallel::ScheduleShape& shape) {
    const parallel::StageMap stages = shape.stages();
    parallel::RankActions ranks(shape.num_ranks);
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        for (int first = 0; first < shape.num_microbatches; first += shape.num_ranks) {
            const int end = std::min(first + shape.num_ranks, shape.num_microbatches);
            for (const int stage : stages.stages_of(rank)) {
                for (int i = first; i < end; ++i)
                    ranks[rank].push_back({parallel::ActionKind::Forward, stage, i});
            }
        }
    }
    return parallel::with_transfers(ranks, stages);
}

/// The optimizer uses the run's seed, too, so that one seed determines all random numbers of a run.
StepOptions step_options(const TrainerOptions& options) {
    StepOptions step = options.step;
    step.adamw.seed = options.model.seed;
    return step;
}

/// COLLECTIVE: makes the groups of the optimizers.
void open_groups(const std::vector<OptimizerChoice>& choices, const parallel::ModelPlacement& placement,
                 comm::Mesh& mesh) {
    std::vector<std::vector<const layout::ParamSpec*>> taken(choices.size());
    for (size_t unit = 0; unit < placement.units.size(); ++unit) {
        if (placement.rank_of(unit) != mesh.coordinate(Axis::Pipeline)) continue;
        for (const model::Parameter& parameter : placement.units[unit]) {
            const auto choice = std::ranges::find_if(
                choices, [&](const OptimizerChoice& each) { return each.takes(parameter.spec); });
            if (choice != choices.end()) taken[choice - choices.begin()].push_back(&parameter.spec);
        }
    }
    for (size_t i = 0; i < choices.size(); ++i) {
        if (choices[i].open_groups) choices[i].open_groups(taken[i], mesh);
    }
}

parallel::ModelOptions model_options(const TrainerOptions& options) {
    parallel::ModelOptions model = options.model;
    if (options.step.qk_clip) model.score_threshold = options.step.qk_clip;
    return model;
}

}  // namespace

parallel::ModelPlacement place_parameters(const TrainerOptions& options, const layout::MeshShape& mesh) {
    check_rows(options.model, mesh.degree(Axis::Context), mesh.degree(Axis::Tensor));
    const std::vector<int> one_stage = {static_cast<int>(options.spec.num_layers)};
    return parallel::place_parameters(options.spec, mesh,
                                      options.stage_layers.empty() ? one_stage : options.stage_layers,
                                      stage_order(options, mesh.degree(Axis::Pipeline)));
}

parallel::Program forward_program(const TrainerOptions& options, const comm::Mesh& mesh) {
    const parallel::ModelPlacement placement = place_parameters(options, mesh.shape());
    const parallel::RankActions actions = forward_actions(schedule_shape(options, placement));
    parallel::LoweringOptions lowering = lowering_options(options, mesh, placement);
    lowering.recompute = model::RecomputeMode::Full;  // forward keeps the least, as no backward follows
    lowering.forward_only = true;
    return parallel::lower(actions[mesh.coordinate(Axis::Pipeline)], lowering);
}

/// Everything that can be refused, and the optimizers' groups, made before the model takes memory.
struct Trainer::Parts {
    Parts(const TrainerOptions& options, comm::Mesh& mesh)
        : placement(place_parameters(options, mesh.shape())),
          program(make_program(options, mesh, placement)) {
        open_groups(options.step.optimizers, placement, mesh);
        if (options.spec.experts) ExpertBalance::open_groups(options.step.balance, mesh);
    }

    parallel::ModelPlacement placement;
    parallel::Program program;
};

Trainer::Trainer(const TrainerOptions& options, comm::Mesh& mesh)
    : Trainer(options, mesh, Parts(options, mesh)) {}

Trainer::Trainer(const TrainerOptions& options, comm::Mesh& mesh, const Parts& parts)
    : seed_(options.model.seed),
      model_(options.spec, parts.placement, mesh, model_options(options)),
      step_(model_, mesh, {model_, mesh, parts.program, options.executor}, step_options(options)) {}

}  // namespace argosy::train
