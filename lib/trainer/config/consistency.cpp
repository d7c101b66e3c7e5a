#include "config/job_config.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "config/schema.h"

namespace argosy::config {
namespace {

/// float64 runs compare layouts to the last digits, which one stage in float32 would spoil.
void check_float64(const Training& training) {
    const auto is_double = [](Precision precision) { return precision == Precision::Float64; };
    const int num_doubles = is_double(training.dtype) + is_double(training.mixed_precision_param) +
                            is_double(training.mixed_precision_reduce);
    if (num_doubles == 0 || num_doubles == 3) return;
    throw UserError(
        "training.dtype = {}, mixed_precision_param = {}, mixed_precision_reduce = {}: set all three to "
        "float64, or none",
        name_of(training.dtype), name_of(training.mixed_precision_param),
        name_of(training.mixed_precision_reduce));
}

void check_states(const JobConfig& config) {
    const auto& states = config.optimizer.state_dtype;
    if (!states || (*states == Precision::Float64) == (config.training.dtype == Precision::Float64)) return;
    throw UserError("optimizer.state_dtype = {}, but training.dtype = {}: set both to float64, or neither",
                    name_of(*states), name_of(config.training.dtype));
}

void check_muon(const JobConfig& config) {
    for (const Field& field : find_section("optimizer")->fields) {
        if (config.optimizer.name == OptimizerName::Muon || !field.name.starts_with("muon_") ||
            field.get(config) == field.get(JobConfig{}))
            continue;
        throw UserError(
            "{} is set, but optimizer.name = {} has no use for it; set optimizer.name = Muon, or remove the "
            "key",
            field.key, name_of(config.optimizer.name));
    }
    const auto& steps = config.optimizer.muon_ns_dtype;
    if (!steps || config.training.dtype != Precision::Float64) return;
    throw UserError(
        "optimizer.muon_ns_dtype = {}, but training.dtype = float64: a float64 run computes all in float64; "
        "remove the key",
        name_of(*steps));
}

/// The optimizer computes with eps in float32, or in float64 with float64 weights. An eps of 0 there divides
/// 0 by 0 where a weight never had a gradient.
void check_eps(const JobConfig& config) {
    const double eps = config.optimizer.eps;
    if (config.training.dtype == Precision::Float64 || static_cast<float>(eps) > 0) return;
    throw UserError(
        "optimizer.eps = {} is 0 in float32, the optimizer's type with training.dtype = {}; set it to {:.2} "
        "or more",
        eps, name_of(config.training.dtype), std::numeric_limits<float>::denorm_min());
}

void check_gradients(const Training& training) {
    const auto& gradients = training.gradient_accumulation_dtype;
    if (!gradients || training.dtype != Precision::Float64) return;
    throw UserError(
        "training.gradient_accumulation_dtype = {}, but training.dtype = float64: a float64 run keeps its "
        "gradients in float64; remove the key",
        name_of(*gradients));
}

/// bfloat16 weights have no wider copy, so the computation uses the weights themselves.
void check_pure_bfloat16(const Training& training) {
    if (training.dtype != Precision::BFloat16 || training.mixed_precision_param == Precision::BFloat16)
        return;
    throw UserError(
        "training.dtype = bfloat16, but mixed_precision_param = {}: without a float32 copy the computation "
        "uses the weights' own type; set both to bfloat16, or training.dtype to float32",
        name_of(training.mixed_precision_param));
}

void check_number_types(const JobConfig& config) {
    check_float64(config.training);
    check_states(config);
    check_muon(config);
    check_eps(config);
    check_gradients(config.training);
    check_pure_bfloat16(config.training);
}

void check_batches(const JobConfig& config) {
    const int64_t local = config.training.local_batch_size, global = config.training.global_batch_size;
    if (global != -1 && global % local != 0) {
        throw UserError(
            "training.global_batch_size = {} is not a multiple of training.local_batch_size = {}; change one "
            "of them",
            global, local);
    }
    const int64_t microbatch = config.parallelism.pipeline_parallel_microbatch_size;
    if (local % microbatch != 0) {
        throw UserError(
            "training.local_batch_size = {} is not a multiple of "
            "parallelism.pipeline_parallel_microbatch_size = {}; change one of them",
            local, microbatch);
    }
}

void check_data(const JobConfig& config) {
    if (config.data.mixture.empty() || config.training.dataset_path.empty()) return;
    throw UserError(
        "training.dataset_path = {} and data.mixture are both set; to mix that file in, give it an entry of "
        "data.mixture and remove training.dataset_path",
        config.training.dataset_path);
}

/// The model is built for the microbatches of training, so validation runs with these.
void check_validation(const JobConfig& config) {
    const Validation& validation = config.validation;
    if (!validation.enable) return;
    if (validation.dataset_path.empty())
        throw UserError("validation.enable = true, but validation.dataset_path is not set");
    const bool pipelined = config.parallelism.pipeline_parallel_degree > 1;
    const int64_t local = config.training.local_batch_size;
    const int64_t microbatch = pipelined ? config.parallelism.pipeline_parallel_microbatch_size : local;
    if (validation.local_batch_size.value_or(local) % microbatch != 0) {
        throw UserError(
            "validation.local_batch_size = {} is not a multiple of {} = {}, the samples of a microbatch; "
            "change "
            "one of them",
            *validation.local_batch_size,
            pipelined ? "parallelism.pipeline_parallel_microbatch_size" : "training.local_batch_size",
            microbatch);
    }
    if (validation.seq_len.value_or(1) <= config.training.seq_len) return;
    throw UserError(
        "validation.seq_len = {} exceeds training.seq_len = {}, for which the model is built; lower the "
        "first",
        *validation.seq_len, config.training.seq_len);
}

void check_evaluation(const Evaluation& evaluation) {
    if (evaluation.num_fewshot == 0 || !evaluation.fewshot_file.empty()) return;
    throw UserError(
        "evaluation.num_fewshot = {} needs examples; name a file of them with evaluation.fewshot_file",
        evaluation.num_fewshot);
}

void check_stages(const Parallelism& parallelism) {
    const auto& layers = parallelism.pipeline_parallel_layers_per_stage;
    if (layers == std::vector<int64_t>{0}) {
        throw UserError(
            "parallelism.pipeline_parallel_layers_per_stage = 0 leaves every stage without layers; give one "
            "number from 1 on, or one per stage: the first and the last may be 0");
    }
    if (layers.size() <= 1 || std::ssize(layers) % parallelism.pipeline_parallel_degree == 0) return;
    throw UserError(
        "parallelism.pipeline_parallel_layers_per_stage = [{}] is for {} stages, but "
        "parallelism.pipeline_parallel_degree is {}; give one number per stage, and each rank as many stages",
        fmt::join(layers, ", "), layers.size(), parallelism.pipeline_parallel_degree);
}

/// Without total_steps, warmup_steps may exceed training.steps: a trial of the first few steps of a long run
/// may be all warm-up.
void check_schedule(const LrScheduler& schedule) {
    if (!schedule.total_steps || schedule.warmup_steps <= *schedule.total_steps) return;
    throw UserError("lr_scheduler.warmup_steps = {} exceeds lr_scheduler.total_steps = {}; lower the first",
                    schedule.warmup_steps, *schedule.total_steps);
}

void check_loss_spike(const LossSpike& spike) {
    if (!spike.enabled() && spike != LossSpike{}) {
        throw UserError(
            "a key of [loss_spike] is set, but neither loss_spike.loss_zscore nor "
            "loss_spike.grad_norm_zscore is, so no update would be skipped; set one of them (for example to "
            "6), or remove the others");
    }
    if (spike.warmup_steps <= spike.window) return;
    throw UserError(
        "loss_spike.warmup_steps = {} exceeds loss_spike.window = {}, so no step would ever be checked; "
        "lower the first",
        spike.warmup_steps, spike.window);
}

void check_saving(const Checkpoint& checkpoint) {
    if (checkpoint.keep_latest_k == 1) {
        throw UserError(
            "checkpoint.keep_latest_k = 1 would leave no other checkpoint if the newest one is damaged; set "
            "2 or more, or 0 to keep all");
    }
    if (checkpoint.keep_every.value_or(checkpoint.interval) % checkpoint.interval != 0) {
        throw UserError(
            "checkpoint.keep_every = {} is not a multiple of checkpoint.interval = {}, and steps are saved "
            "only at multiples of the interval; change one of them",
            *checkpoint.keep_every, checkpoint.interval);
    }
    if (checkpoint.export_dtype && !checkpoint.last_save_model_only && !checkpoint.last_save_in_hf) {
        throw UserError(
            "checkpoint.export_dtype = {} needs checkpoint.last_save_model_only or last_save_in_hf, but "
            "neither is set",
            name_of(*checkpoint.export_dtype));
    }
}

void check_channels(const Comm& comm) {
    constexpr int kCluster = 4;
    if (const int channels = comm.collective_channels; channels % kCluster != 0) {
        throw UserError(
            "comm.collective_channels = {} is not a multiple of {}, the thread blocks of a cluster of NCCL's "
            "kernels on Hopper and later; set {}, or 0 to let NCCL choose",
            channels, kCluster, channels + kCluster - channels % kCluster);
    }
    // NCCL launches fewer blocks than a cluster has without clusters.
    if (const unsigned channels = comm.message_channels; channels != 0 && !std::has_single_bit(channels)) {
        throw UserError(
            "comm.message_channels = {} is not a power of two, and NCCL would take {}, the next one; set {} "
            "or {}, or 0 to let NCCL choose",
            channels, std::bit_ceil(channels), std::bit_floor(channels), std::bit_ceil(channels));
    }
    if (!comm.products_leave_channels || comm.collective_channels + comm.message_channels > 0) return;
    throw UserError(
        "comm.products_leave_channels = true, but neither comm.collective_channels nor comm.message_channels "
        "is set, "
        "so nothing says how many SMs products leave; set comm.collective_channels = 16, or remove the key");
}

void check_loading(const Checkpoint& checkpoint, const Model& model) {
    if (!checkpoint.enable && checkpoint.load_step != Checkpoint::kNewest) {
        throw UserError(
            "checkpoint.load_step = {} needs checkpoint.enable = true; to start from another run's step, set "
            "checkpoint.initial_load_path to its folder",
            checkpoint.load_step);
    }
    if (!checkpoint.enable && checkpoint.load_only) {
        throw UserError("checkpoint.load_only needs checkpoint.enable = true");
    }
    if (checkpoint.initial_load_in_hf && checkpoint.initial_load_path.empty() &&
        model.hf_assets_path.empty()) {
        throw UserError(
            "checkpoint.initial_load_in_hf is set, but neither checkpoint.initial_load_path nor "
            "model.hf_assets_path names a folder");
    }
    if (checkpoint.initial_load_model_only) return;
    if (checkpoint.initial_load_in_hf) {
        throw UserError(
            "checkpoint.initial_load_model_only = false, but a Hugging Face folder (initial_load_in_hf) "
            "holds only weights; remove one of the two");
    }
    if (checkpoint.initial_load_path.empty()) {
        throw UserError(
            "checkpoint.initial_load_model_only = false, but checkpoint.initial_load_path is not set");
    }
}

/// The section's keys without its converter would have no effect; two converters would cast twice.
template <class Keys>
void check_converter(const Model& model, Converter converter, const Keys& keys) {
    if (std::ranges::count(model.converters, converter) == 0 && keys != Keys{}) {
        throw UserError(
            "[{0}] has no effect without model.converters = [\"{0}\"]; add it, or remove the keys",
            name_of(converter));
    }
}

void check_converters(const JobConfig& config) {
    check_converter(config.model, Converter::Float8, config.float8);
    check_converter(config.model, Converter::Mx, config.mx);
    const Float8Recipe recipe = config.float8.recipe();
    if (config.float8.enable_fsdp_float8_all_gather && recipe != Float8Recipe::Tensorwise) {
        throw UserError(
            "quantize.linear.float8.enable_fsdp_float8_all_gather is for the recipe tensorwise, not for {}: "
            "weights are gathered with one scale for a whole matrix",
            name_of(recipe));
    }
    if (config.model.converters.size() > 1) {
        throw UserError("model.converters has {} converters of the same layers; choose one",
                        config.model.converters.size());
    }
    if (!config.model.converters.empty() && config.training.mixed_precision_param == Precision::Float64) {
        throw UserError(
            "{} sums products in float32: set training.mixed_precision_param to bfloat16 or float32",
            name_of(config.model.converters[0]));
    }
}

}  // namespace

void check_consistency(const JobConfig& config) {
    if (config.job.dump_folder.empty())
        throw UserError("job.dump_folder is empty; name a folder for the files that the run writes");
    check_number_types(config);
    check_converters(config);
    check_batches(config);
    check_data(config);
    check_validation(config);
    check_evaluation(config.evaluation);
    check_stages(config.parallelism);
    check_schedule(config.lr_scheduler);
    check_loss_spike(config.loss_spike);
    check_saving(config.checkpoint);
    check_loading(config.checkpoint, config.model);
    check_channels(config.comm);
}

}  // namespace argosy::config
