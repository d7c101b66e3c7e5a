#include "train/trainer.h"

#include "base/error.h"

namespace argosy::train {
namespace {

using layout::Axis;

/// Throws UserError unless the degree of the tensor axis divides the number of tokens of a microbatch.
/// Between two blocks of the model, each rank of the tensor axis holds an equal share of these tokens.
void check_rows(const TrainerOptions& options, int tensor_degree) {
    const int64_t tokens = options.microbatch_size * options.seq_len;
    if (tokens % tensor_degree == 0) return;
    throw UserError(
        "a microbatch of {} x {} = {} tokens cannot be split over parallelism.tensor_parallel_degree = {}; "
        "make training.seq_len a multiple of it",
        options.microbatch_size, options.seq_len, tokens, tensor_degree);
}

parallel::LoweringOptions lowering_options(const TrainerOptions& options, const comm::Mesh& mesh,
                                           const parallel::ModelPlacement& placement) {
    return {
        .stages = parallel::stage_units(placement),
        .sharded = mesh.degree(layout::kShardAxes) > 1,
        .reshard = options.reshard,
        .reduce_after = parallel::reduce_after(mesh.shape()),
        .recompute = options.recompute,
        .sums_in_place = !options.precision.bf16_gradients,
    };
}

parallel::Executor make_executor(const TrainerOptions& options, comm::Mesh& mesh,
                                 const parallel::ModelPlacement& placement, parallel::ParallelModel& model) {
    const parallel::LoweringOptions lowering = lowering_options(options, mesh, placement);
    const parallel::ScheduleShape shape{.num_stages = static_cast<int>(lowering.stages.size()),
                                        .num_ranks = mesh.degree(Axis::Pipeline),
                                        .num_microbatches = static_cast<int>(options.num_microbatches)};
    const auto actions = parallel::schedule(options.schedule, shape, mesh.coordinate(Axis::Pipeline));
    return {model,
            mesh,
            parallel::lower(actions, lowering),
            {.recompute = options.recompute, .graphs = options.graphs, .side_stream = options.side_stream}};
}

/// The optimizer uses the run's seed, too, so that one seed determines all random numbers of a run.
StepOptions step_options(const TrainerOptions& options) {
    StepOptions step = options.step;
    step.adamw.seed = options.seed;
    return step;
}

}  // namespace

parallel::ModelPlacement place_parameters(const TrainerOptions& options, const layout::MeshShape& mesh) {
    check_rows(options, mesh.degree(Axis::Tensor));
    const std::vector<int> one_stage = {static_cast<int>(options.spec.num_layers)};
    return parallel::place_parameters(options.spec, mesh,
                                      options.stage_layers.empty() ? one_stage : options.stage_layers);
}

Trainer::Trainer(const TrainerOptions& options, comm::Mesh& mesh)
    : Trainer(options, mesh, place_parameters(options, mesh.shape())) {}

Trainer::Trainer(const TrainerOptions& options, comm::Mesh& mesh, const parallel::ModelPlacement& placement)
    : seed_(options.seed),
      model_(options.spec, placement, mesh, options.precision, options.seq_len, options.seed),
      step_(model_, mesh, make_executor(options, mesh, placement, model_), step_options(options)) {}

}  // namespace argosy::train
