#include "plan/search_space.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/ordered_tasks.h"
#include "ops/ops_context.h"
#include "setup/options.h"

namespace argosy::plan {
namespace {

using config::JobConfig;
using config::PipelineSchedule;
using config::Precision;
using config::RecomputeMode;
using config::Switch;

constexpr int64_t kLongSequence = 32768;  // a context axis is tried from this length on

// Each row sets one type, unless it does not go with those of the configuration.
constexpr NumberTypes kNarrowTypes[] = {
    {"optimizer states in bfloat16, rounded stochastically",
     [](JobConfig& config) { config.optimizer.state_dtype = Precision::BFloat16; }},
    {"optimizer states and gradients in bfloat16, rounded stochastically",
     [](JobConfig& config) { config.training.gradient_accumulation_dtype = Precision::BFloat16; }},
    {"optimizer states, gradients and weights in bfloat16, rounded stochastically",
     [](JobConfig& config) {
         if (config.training.mixed_precision_param == Precision::BFloat16)
             config.training.dtype = Precision::BFloat16;
     }},
};

void set_float8(JobConfig& config, config::Float8Recipe recipe, bool gather = false) {
    config.model.converters = {config::Converter::Float8};
    config.float8.recipe_name = recipe;
    config.float8.enable_fsdp_float8_all_gather = gather;
    config.float8.emulate = false;  // an emulated product takes longer than one without casts
    config.mx = {};
}

constexpr int kFirstWithBlocks = 100;  // the first compute capability that multiplies MXFP8
constexpr NumberTypes kCasts[] = {
    {"products without casts",
     [](JobConfig& config) {
         config.model.converters.clear();
         config.float8 = {};
         config.mx = {};
     }},
    {"products in float8, tensorwise",
     [](JobConfig& config) { set_float8(config, config::Float8Recipe::Tensorwise); }},
    {"products in float8, tensorwise, and weights kept in float8",
     [](JobConfig& config) { set_float8(config, config::Float8Recipe::Tensorwise, /*gather=*/true); }},
    {"products in float8, rowwise",
     [](JobConfig& config) { set_float8(config, config::Float8Recipe::Rowwise); }},
    {"products in float8, rowwise_with_gw_hp",
     [](JobConfig& config) { set_float8(config, config::Float8Recipe::RowwiseWithWeightGradient); }},
    {"products in MXFP8",
     [](JobConfig& config) {
         config.model.converters = {config::Converter::Mx};
         config.float8 = {};
         config.mx.recipe_name = config.mx.recipe();
     }},
};

std::vector<int> powers_of_two(int largest) {
    std::vector<int> numbers;
    for (int number = 1; number <= largest; number *= 2) numbers.push_back(number);
    return numbers;
}

/// Shards over all of `data` ranks, and over those on a node, `near`.
std::vector<int> shard_degrees(int data, int near) {
    std::vector<int> degrees = {data};
    if (near >= 1 && near < data && data % near == 0) degrees.push_back(near);
    return degrees;
}

/// Whether the configuration fixes the pipeline's stages.
bool has_own_stages(const config::Parallelism& mesh) {
    return !mesh.pipeline_parallel_schedule_csv.empty() || !mesh.pipeline_parallel_layers_per_stage.empty();
}

/// The given configuration with these degrees, once for each number of shards. Nothing if the ranks cannot be
/// divided so, or if the configuration has stages of its own for another number of pipeline ranks.
std::vector<JobConfig> with_degrees(const JobConfig& given, int tensor, int context, int pipeline,
                                    int num_ranks, int per_node) {
    const int group = tensor * context * pipeline;
    if (num_ranks % group != 0) return {};
    JobConfig one = given;
    auto& mesh = one.parallelism;
    if (has_own_stages(mesh) && pipeline != mesh.pipeline_parallel_degree) return {};
    mesh.tensor_parallel_degree = tensor;
    mesh.context_parallel_degree = context;
    mesh.pipeline_parallel_degree = pipeline;
    if (tensor > 1) mesh.enable_async_tensor_parallel = Switch::Off;  // the search tries On later
    std::vector<JobConfig> found;
    for (const int shard : shard_degrees(num_ranks / group, per_node / (tensor * context))) {
        mesh.data_parallel_shard_degree = shard;
        mesh.data_parallel_replicate_degree = num_ranks / group / shard;
        found.push_back(one);
    }
    return found;
}

/// The configurations with the degrees that divide their experts, one after the other: of parts of the shard
/// axis those with the ranks of a node, or double, and so on, because a part of a node has more experts in
/// memory for the same messages within it; and the largest part of a node, for models whose experts those do
/// not divide.
std::vector<JobConfig> with_expert_degrees(const std::vector<JobConfig>& dense, int per_node) {
    std::vector<JobConfig> found;
    for (JobConfig config : dense) {
        auto& mesh = config.parallelism;
        const int near = mesh.tensor_parallel_degree * mesh.context_parallel_degree;
        const int shard = mesh.data_parallel_shard_degree;
        std::set degrees = {1, mesh.tensor_parallel_degree, near, near * shard};
        int below = 1;  // the largest part of a node
        for (const int inner : powers_of_two(shard)) {
            if (shard % inner != 0) continue;
            if (near * inner >= per_node) degrees.insert(near * inner);
            if (near * inner < per_node) below = inner;
        }
        degrees.insert(near * below);
        for (const int degree : degrees) {
            mesh.expert_parallel_degree = degree;
            found.push_back(config);
        }
    }
    return found;
}

/// The global batch of the given configuration, in samples.
int64_t global_batch(const JobConfig& config, int num_ranks) {
    if (config.training.global_batch_size != -1) return config.training.global_batch_size;
    const auto& mesh = config.parallelism;
    const int64_t others = int64_t{mesh.tensor_parallel_degree} * mesh.pipeline_parallel_degree;
    const int64_t data = num_ranks / others / mesh.context_parallel_degree;
    return config.training.local_batch_size * std::max<int64_t>(1, data);
}

std::vector<JobConfig> meshes(const JobConfig& given, int num_ranks, const Machine& machine) {
    std::vector<JobConfig> found;
    const int per_node = std::min(machine.ranks_per_node, num_ranks);
    const bool is_long = given.training.seq_len >= kLongSequence;
    for (const int tensor : powers_of_two(per_node)) {
        for (const int context : powers_of_two(is_long ? per_node / tensor : 1)) {
            for (const int pipeline : powers_of_two(num_ranks / tensor / context)) {
                std::ranges::move(with_degrees(given, tensor, context, pipeline, num_ranks, per_node),
                                  std::back_inserter(found));
            }
        }
    }
    return setup::choose_model(given.model).experts ? with_expert_degrees(found, per_node) : found;
}

/// Sets the number of sequences of a microbatch. Returns whether the global batch divides into them.
bool set_microbatch(JobConfig& config, int64_t batch, int64_t microbatch, int num_ranks) {
    const auto& mesh = config.parallelism;
    const int64_t data = num_ranks / (mesh.tensor_parallel_degree * mesh.context_parallel_degree *
                                      mesh.pipeline_parallel_degree);
    const int64_t samples = batch / data;  // of a data-parallel rank
    if (batch % data != 0 || samples % microbatch != 0) return false;
    const bool pipelined = mesh.pipeline_parallel_degree > 1;
    if (pipelined && samples / microbatch < mesh.pipeline_parallel_degree) return false;
    config.training.global_batch_size = batch;
    config.training.local_batch_size = pipelined ? samples : microbatch;
    config.parallelism.pipeline_parallel_microbatch_size = pipelined ? microbatch : 1;
    return true;
}

Trial try_config(const JobConfig& config, int num_ranks, const Machine& machine) {
    try {
        return {config, make_rough_plan(config, num_ranks, machine), ""};
    } catch (const UserError& error) {
        return {config, std::nullopt, error.what()};
    }
}

using Trials = std::vector<Trial>;

/// Calls trials_of(item) for each of the items on several threads. The trials of all, in order.
template <class Item, class TrialsOf>
Trials try_all(const std::vector<Item>& items, const TrialsOf& trials_of) {
    std::vector<Trials> found(items.size());
    on_threads(items.size(), [&](size_t i) { found[i] = trials_of(items[i]); });
    Trials all;
    for (Trials& each : found) std::ranges::move(each, std::back_inserter(all));
    return all;
}

/// The largest share of a rank's step that waits for other stages.
double bubble_share(const Plan& plan) {
    double largest = 0;
    for (const RankPlan& rank : plan.ranks) largest = std::max(largest, rank.time.bubble / rank.time.total);
    return largest;
}

}  // namespace

void on_threads(size_t count, const std::function<void(size_t)>& work) {
    constexpr int kEnough = 16;
    OrderedTasks<bool> tasks(std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kEnough));
    for (size_t i = 0; i < count; ++i) {
        tasks.add([&work, i, path = ops::path()] {
            const ops::OpsContext tensors(path);
            work(i);
            return true;
        });
    }
    while (tasks.size() > 0) tasks.take();
}

std::vector<Trial> try_meshes(const JobConfig& given, int num_ranks, const Machine& machine) {
    const int64_t batch = global_batch(given, num_ranks);
    return try_all(meshes(given, num_ranks, machine), [&](JobConfig config) {
        Trials trials;
        bool any_fits = true;
        for (int64_t microbatch = 1; microbatch <= 16 && any_fits; microbatch *= 2) {
            if (!set_microbatch(config, batch, microbatch, num_ranks)) break;
            any_fits = false;
            for (const RecomputeMode mode :
                 {RecomputeMode::Full, RecomputeMode::Selective, RecomputeMode::None}) {
                config.activation_checkpoint.mode = mode;
                trials.push_back(try_config(config, num_ranks, machine));
                const std::optional<Plan>& plan = trials.back().plan;
                if (!plan || !could_fit(*plan, given)) break;
                any_fits = true;
            }
        }
        return trials;
    });
}

std::vector<Trial> try_in_full(const std::vector<JobConfig>& configs, int num_ranks, const Machine& machine) {
    return try_all(configs, [&](const JobConfig& config) {
        return Trials{{config, make_plan(config, num_ranks, machine), ""}};
    });
}

std::vector<Trial> try_refinements(const std::vector<const Trial*>& promising, int num_ranks,
                                   const Machine& machine) {
    return try_all(promising, [&](const Trial* trial) {
        constexpr double kFewBubbles = 0.04;  // no schedule gains much
        const JobConfig& config = trial->config;
        Trials trials;
        std::vector<JobConfig> variants = {config};
        if (machine.is_gpu && has_tensor_axis(config)) {
            variants.push_back(with_other_overlap(config));
            trials.push_back(try_config(variants.back(), num_ranks, machine));
        }
        const auto& mesh = config.parallelism;
        if (mesh.pipeline_parallel_degree == 1 || has_own_stages(mesh)) return trials;
        if (bubble_share(*trial->plan) < kFewBubbles) return trials;
        for (JobConfig& variant : variants) {
            for (const PipelineSchedule schedule :
                 {PipelineSchedule::InterleavedOneForwardOneBackward, PipelineSchedule::ZbvZeroBubble}) {
                variant.parallelism.pipeline_parallel_schedule = schedule;
                trials.push_back(try_config(variant, num_ranks, machine));
            }
        }
        return trials;
    });
}

bool has_tensor_axis(const JobConfig& config) { return config.parallelism.tensor_parallel_degree > 1; }

JobConfig with_other_overlap(JobConfig config) {
    Switch& overlap = config.parallelism.enable_async_tensor_parallel;
    overlap = overlap == Switch::On ? Switch::Off : Switch::On;
    return config;
}

std::vector<const NumberTypes*> narrower_types(const JobConfig& given) {
    std::vector<const NumberTypes*> found;
    if (given.training.dtype == Precision::Float64) return found;
    JobConfig last = given;
    for (const NumberTypes& row : kNarrowTypes) {
        const JobConfig narrow = with_types(given, row);
        if (narrow != last) found.push_back(&row);
        last = narrow;
    }
    return found;
}

std::vector<const NumberTypes*> product_casts(const JobConfig& given, const Machine& machine) {
    if (machine.float8_flops == 0 || given.training.dtype == Precision::Float64) return {};
    std::vector<const NumberTypes*> found;
    for (const NumberTypes& casts : kCasts) {
        if (&casts != std::prev(std::end(kCasts)) || machine.capability >= kFirstWithBlocks)
            found.push_back(&casts);
    }
    return found;
}

JobConfig with_types(JobConfig config, const NumberTypes& row) {
    for (const NumberTypes* types = kNarrowTypes; types <= &row; ++types) types->set(config);
    return config;
}

int64_t bytes_with(const Plan& plan, const JobConfig& given, const NumberTypes& row) {
    const JobConfig narrow = with_types(given, row);
    const HeldBytes& held = plan.fullest().trace.peak.held;
    int64_t bytes = plan.peak_bytes();
    if (narrow.optimizer.state_dtype != given.optimizer.state_dtype) bytes -= held.states / 2;
    if (narrow.training.gradient_accumulation_dtype != given.training.gradient_accumulation_dtype)
        bytes -= held.gradients / 2;
    if (narrow.training.dtype != given.training.dtype) bytes -= held.weights / 2 + held.copies;
    return bytes;
}

bool could_fit(const Plan& plan, const JobConfig& given) {
    const auto narrower = narrower_types(given);
    return plan.fits() ||
           (!narrower.empty() && bytes_with(plan, given, *narrower.back()) <= plan.room_bytes());
}

}  // namespace argosy::plan
