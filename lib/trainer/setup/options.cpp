#include "setup/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/units.h"
#include "parallel/own_schedule.h"
#include "parallel/placement.h"
#include "parallel/transfers.h"
#include "setup/converters.h"
#include "setup/graphs.h"
#include "setup/number_types.h"
#include "setup/step_options.h"

namespace argosy::setup {
namespace {

/// The default for a pipeline keeps weights gathered; otherwise each microbatch would gather them again.
parallel::Reshard reshard(const config::Parallelism& parallelism) {
    using enum parallel::Reshard;
    const auto usual = parallelism.pipeline_parallel_degree > 1 ? Never : EveryPass;
    return config::one_of(parallelism.fsdp_reshard_after_forward, {usual, EveryPass, Never});
}

parallel::ContextOptions context_options(const config::Parallelism& parallelism) {
    using Rotation = parallel::ContextOptions::Rotation;
    const bool at_once = parallelism.context_parallel_rotate_method == config::RotateMethod::AllGather;
    return {.rotation = at_once ? Rotation::AllGather : Rotation::Ring,
            .balance = parallelism.context_parallel_load_balancer};
}

parallel::Precision precision(const config::Training& training) {
    return {.master = scalar_type(training.dtype),
            .compute = scalar_type(training.mixed_precision_param),
            .reduce = scalar_type(training.mixed_precision_reduce),
            .bf16_gradients = training.gradient_accumulation_dtype == config::Precision::BFloat16};
}

parallel::RankActions own_schedule(const config::Parallelism& parallelism) {
    const std::string& path = parallelism.pipeline_parallel_schedule_csv;
    return path.empty() ? parallel::RankActions{} : parallel::read_schedule(path);
}

/// The number of stages if the configuration does not list their layers. One number for the layers of every
/// stage counts the embedding and the head as the layers that the first and the last stage have less.
int num_stages(const config::Parallelism& parallelism, const parallel::RankActions& own, int64_t num_layers) {
    if (!own.empty()) return parallel::num_stages(own);
    const int num_ranks = parallelism.pipeline_parallel_degree;
    const auto& given = parallelism.pipeline_parallel_layers_per_stage;
    const std::string schedule(name_of(parallelism.pipeline_parallel_schedule));
    if (given.empty()) return num_ranks * parallel::default_stages_per_rank(schedule);
    const int64_t total = num_layers + parallelism.pipeline_parallel_first_stage_less_layers +
                          parallelism.pipeline_parallel_last_stage_less_layers;
    const int64_t number = (total + given[0] - 1) / given[0];
    if (number % num_ranks != 0) {
        throw UserError(
            "parallelism.pipeline_parallel_layers_per_stage = {} makes {} stages of {} layers (with those "
            "that "
            "the embedding and the head count for), which {} ranks cannot share evenly; change the number",
            given[0], number, total, num_ranks);
    }
    return static_cast<int>(number);
}

std::vector<int> stage_layers(const config::Parallelism& parallelism, const parallel::RankActions& own,
                              int64_t num_layers) {
    const auto& given = parallelism.pipeline_parallel_layers_per_stage;
    const bool is_for_every_stage = given.size() == 1 && parallelism.pipeline_parallel_degree > 1;
    const bool is_listed = !given.empty() && !is_for_every_stage;
    const int number = is_listed ? static_cast<int>(given.size()) : num_stages(parallelism, own, num_layers);
    if (!own.empty() && number != parallel::num_stages(own)) {
        throw UserError(
            "parallelism.pipeline_parallel_layers_per_stage lists {} stages, but {} has {}; change one of "
            "them",
            number, parallelism.pipeline_parallel_schedule_csv, parallel::num_stages(own));
    }
    if (is_listed) return {given.begin(), given.end()};
    return parallel::split_layers(num_layers, number, parallelism.pipeline_parallel_first_stage_less_layers,
                                  parallelism.pipeline_parallel_last_stage_less_layers);
}

/// Batches of `global_batch` samples, in the microbatches of training.
train::BatchSizes sizes_of_batches(const config::JobConfig& config, const layout::MeshShape& mesh,
                                   int64_t global_batch) {
    const bool pipelined = mesh.degree(layout::Axis::Pipeline) > 1;
    const int64_t microbatch =
        pipelined ? config.parallelism.pipeline_parallel_microbatch_size : config.training.local_batch_size;
    return {.global_batch = global_batch,
            .microbatch_size = microbatch,
            .num_microbatches = global_batch / mesh.degree(layout::kDataAxes) / microbatch,
            .seq_len = config.training.seq_len,
            .balance = config.parallelism.context_parallel_load_balancer};
}

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

int64_t num_experts(const config::Model& model) {
    const model::ModelSpec spec = choose_model(model);
    return spec.experts ? spec.experts->router.num_experts : 0;
}

}  // namespace

comm::GroupOptions group_options(const config::Comm& comm, const Environment& environment,
                                 c10::Device device) {
    return {.timeout_seconds = static_cast<double>(comm.init_timeout_seconds),
            .timeout_setting = "comm.init_timeout_seconds",
            .storage_timeout_seconds = static_cast<double>(comm.storage_timeout_seconds),
            .synchronous_sends = environment.synchronous_sends,
            .shared_memory_bytes = comm.shared_memory ? comm.shared_memory_mib << 20 : 0,
            .device = device,
            // ARGOSY_DEVICE=cpu: no GPU is used, although ranks may see some
            .gpu_path = comm.gpu_path == config::GpuPathChoice::Nccl ? comm::GpuPath::Nccl
                        : device.is_cpu()                            ? comm::GpuPath::None
                                                                     : comm::GpuPath::Auto,
            .collective_channels = comm.collective_channels,
            .message_channels = comm.message_channels,
            .registered_memory = comm.registered_memory,
            .peer_copies = comm.peer_copies};
}

layout::MeshRequest mesh_request(const config::JobConfig& config) {
    const config::Parallelism& parallelism = config.parallelism;
    const bool divides = parallelism.expert_parallel_degree != 1;
    return {.pipeline = parallelism.pipeline_parallel_degree,
            .replicate = parallelism.data_parallel_replicate_degree,
            .shard = parallelism.data_parallel_shard_degree,
            .context = parallelism.context_parallel_degree,
            .tensor = parallelism.tensor_parallel_degree,
            .expert = parallelism.expert_parallel_degree,
            .num_experts = divides ? num_experts(config.model) : 0};
}

train::BatchSizes batch_sizes(const config::JobConfig& config, const layout::MeshShape& mesh) {
    const int64_t data_ranks = mesh.degree(layout::kDataAxes), local = config.training.local_batch_size;
    const int64_t given = config.training.global_batch_size;
    const int64_t global = given == -1 ? local * data_ranks : given;
    if (global % (local * data_ranks) != 0) {
        throw UserError(
            "training.global_batch_size = {} is not a multiple of {} data-parallel ranks x "
            "training.local_batch_size = {}; change one of them",
            global, data_ranks, local);
    }
    return sizes_of_batches(config, mesh, global);
}

train::BatchSizes validation_batch_sizes(const config::JobConfig& config, const layout::MeshShape& mesh) {
    const int64_t local = config.validation.local_batch_size.value_or(config.training.local_batch_size);
    return sizes_of_batches(config, mesh, local * mesh.degree(layout::kDataAxes));
}

train::TrainerOptions trainer_options(const config::JobConfig& config, const model::ModelSpec& spec,
                                      const layout::MeshShape& mesh) {
    const train::BatchSizes sizes = batch_sizes(config, mesh);
    const parallel::RankActions own = own_schedule(config.parallelism);
    // Calls that may throw come first: GCC 12 destroys members twice if the initialization of a later one
    // throws.
    parallel::ProductCasts casts =
        product_casts(config, sizes.microbatch_size * sizes.seq_len / mesh.degree(layout::Axis::Context));
    auto layers = stage_layers(config.parallelism, own, spec.num_layers);
    const bool graphs = uses_graphs(config, {.has_experts = spec.experts.has_value()});
    train::StepOptions step = step_options(config, spec);
    train::TrainerOptions options{
        .spec = spec,
        .model = {.precision = precision(config.training),
                  .casts = std::move(casts),
                  .tensor = {.overlap_products =
                                 config.parallelism.enable_async_tensor_parallel == config::Switch::On,
                             .gather_logits = config.parallelism.disable_loss_parallel},
                  .context = context_options(config.parallelism),
                  .seq_len = sizes.seq_len,
                  .microbatch_size = sizes.microbatch_size,
                  .seed = static_cast<uint64_t>(config.debug.seed),
                  .planned_imbalance = config.moe.planned_imbalance},
        .stage_layers = std::move(layers),
        .schedule = std::string(name_of(config.parallelism.pipeline_parallel_schedule)),
        .own_schedule = own,
        .own_schedule_path = config.parallelism.pipeline_parallel_schedule_csv,
        .reshard = reshard(config.parallelism),
        .recompute = config::one_of(
            config.activation_checkpoint.mode,
            {model::RecomputeMode::None, model::RecomputeMode::Selective, model::RecomputeMode::Full}),
        .num_microbatches = sizes.num_microbatches,
        .executor = {.graphs = graphs},
        .step = std::move(step)};
    check_product_casts(config, options, mesh);
    return options;
}

train::RunLimitsOptions run_limits_options(const config::JobConfig& config, const layout::MeshShape& mesh) {
    const config::Training& training = config.training;
    train::RunLimitsOptions options{.steps = training.steps,
                                    .max_tokens = training.max_tokens,
                                    .tokens_per_step = batch_sizes(config, mesh).global_tokens()};
    if (training.max_time) {
        options.max_time = {.seconds = static_cast<double>(training.max_time->seconds),
                            .text = config::duration_text(*training.max_time)};
    }
    return options;
}

train::UpdateGuardOptions update_guard_options(const config::JobConfig& config) {
    const config::LossSpike& spike = config.loss_spike;
    return {.max_nonfinite_steps = config.training.max_nonfinite_steps,
            .loss_zscore = spike.loss_zscore,
            .grad_norm_zscore = spike.grad_norm_zscore,
            .window = spike.window,
            .warmup_steps = spike.warmup_steps,
            .max_skipped_steps = spike.max_skipped_steps};
}

train::LrScheduleOptions lr_schedule_options(const config::JobConfig& config, int64_t final_step) {
    const auto& schedule = config.lr_scheduler;
    return {
        .peak = config.optimizer.lr,
        .warmup_steps = schedule.warmup_steps,
        .total_steps = schedule.total_steps.value_or(final_step),
        .decay_ratio = schedule.decay_ratio,
        .shape = config::one_of(schedule.decay_type, {train::DecayShape::Linear, train::DecayShape::Cosine,
                                                      train::DecayShape::Sqrt}),
        .min_factor = schedule.min_lr_factor};
}

observe::MetricsOptions metrics_options(const config::JobConfig& config, int64_t final_step,
                                        std::optional<int64_t> last_own_step) {
    const config::Metrics& metrics = config.metrics;
    observe::MetricsOptions options{.dump_folder = config.job.dump_folder,
                                    .log_freq = metrics.log_freq,
                                    .final_step = final_step,
                                    .last_own_step = last_own_step};
    if (metrics.enable_tensorboard) options.tensorboard_folder = metrics.save_tb_folder;
    return options;
}

observe::RankTimesOptions rank_times_options(const config::JobConfig& config, const layout::MeshShape& mesh,
                                             const Environment& environment) {
    observe::RankTimesOptions options{.host = environment.node_name(), .mesh = mesh};
    // Without balance, causal attention gives the later parts of a sequence more work.
    if (config.parallelism.context_parallel_load_balancer == layout::ContextBalance::None)
        options.unequal_axes.add(layout::Axis::Context);
    options.unequal_axes.add(mesh.expert_axes);  // some experts get more tokens than others
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
    if (!options.spec.experts) return facts;
    const train::BalanceOptions& balance = options.step.balance;
    facts.experts = {.top_k = options.spec.experts->router.top_k,
                     .num_parts = mesh.degree(mesh.expert_axes),
                     .planned_imbalance = config.moe.planned_imbalance,
                     .bias_update_rate = balance.bias_update_rate,
                     .sequence_loss = balance.sequence_loss,
                     .step_loss = balance.step_loss,
                     .z_loss = balance.z_loss};
    return facts;
}

}  // namespace argosy::setup
