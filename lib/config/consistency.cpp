#include "config/consistency.h"

#include "base/error.h"

namespace argosy::config {
namespace {

/// float64 exists for comparing layouts to the last digits, which one float32 stage in between would spoil.
void check_number_types(const Training& training) {
    const auto is_double = [](Precision precision) { return precision == Precision::Float64; };
    const int num_doubles = is_double(training.dtype) + is_double(training.mixed_precision_param) +
                            is_double(training.mixed_precision_reduce);
    if (num_doubles == 0 || num_doubles == 3) return;
    throw UserError(
        "training.dtype = {}, mixed_precision_param = {}, mixed_precision_reduce = {}: float64 must be all "
        "three of "
        "them or none",
        name_of(training.dtype), name_of(training.mixed_precision_param),
        name_of(training.mixed_precision_reduce));
}

void check_batches(const JobConfig& config) {
    const int64_t local = config.training.local_batch_size, global = config.training.global_batch_size;
    if (global != -1 && global % local != 0) {
        throw UserError("training.global_batch_size = {} is not a multiple of training.local_batch_size = {}",
                        global, local);
    }
    const int64_t microbatch = config.parallelism.pipeline_parallel_microbatch_size;
    if (local % microbatch != 0) {
        throw UserError(
            "training.local_batch_size = {} is not a multiple of "
            "parallelism.pipeline_parallel_microbatch_size = {}",
            local, microbatch);
    }
}

void check_stages(const Parallelism& parallelism) {
    const auto& layers = parallelism.pipeline_parallel_layers_per_stage;
    if (layers.empty() || std::ssize(layers) == parallelism.pipeline_parallel_degree) return;
    throw UserError(
        "parallelism.pipeline_parallel_layers_per_stage = [{}] names {} stages, but "
        "parallelism.pipeline_parallel_degree is {}; give one number a stage",
        fmt::join(layers, ", "), layers.size(), parallelism.pipeline_parallel_degree);
}

/// Only against an explicit total: the first steps of a long run, by a small training.steps, are all warm-up
/// and fine.
void check_schedule(const LrScheduler& schedule) {
    if (!schedule.total_steps || schedule.warmup_steps <= *schedule.total_steps) return;
    throw UserError("lr_scheduler.warmup_steps = {} exceeds lr_scheduler.total_steps = {}; lower the first",
                    schedule.warmup_steps, *schedule.total_steps);
}

}  // namespace

void check_consistency(const JobConfig& config) {
    check_number_types(config.training);
    check_batches(config);
    check_stages(config.parallelism);
    check_schedule(config.lr_scheduler);
}

}  // namespace argosy::config
