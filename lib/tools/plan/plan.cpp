#include "plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "model/flops.h"
#include "plan/continued_plan.h"
#include "plan/fewer_layers.h"
#include "plan/gpus.h"
#include "setup/converters.h"
#include "setup/graphs.h"
#include "setup/number_types.h"
#include "setup/options.h"
#include "train/dry_step.h"

namespace argosy::plan {
namespace {

/// Extends the times to `factor` times as many microbatches. The pipeline fills and empties once; sums over
/// replicas and over the world come once in a step.
void extend_times(Plan& plan, double factor) {
    for (RankPlan& rank : plan.ranks) {
        RankTime& time = rank.time;
        time.compute *= factor;
        time.launches *= factor;
        for (auto& [group, seconds] : time.exposed) {
            if (group != "world" && group.find("dp_replicate") == group.npos) seconds *= factor;
        }
        time.total = time.sum();
        rank.all_to_all.exposed *= factor;
        rank.all_to_all.without_overlap *= factor;
    }
}

train::TrainerOptions trainer_options(const config::JobConfig& config, const layout::MeshShape& mesh) {
    return setup::trainer_options(config, setup::choose_model(config.model), mesh);
}

/// One rank of each stage: those with the last part of the sequence, whose queries see the most keys if the
/// parts do not balance (without a load balancer, or with a sliding window).
std::vector<int> planned_ranks(const layout::MeshShape& mesh) {
    layout::Coordinates last{};
    last[static_cast<int>(layout::Axis::Context)] = mesh.degree(layout::Axis::Context) - 1;
    return mesh.group(mesh.rank(last), layout::Axis::Pipeline);
}

/// One work of each size that a rank of each stage does.
std::vector<ops::Work> work_of_a_step(const config::JobConfig& config, int num_ranks) {
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config), num_ranks);
    train::TrainerOptions options = trainer_options(config, mesh);
    options.num_microbatches =
        std::min<int64_t>(options.num_microbatches, mesh.degree(layout::Axis::Pipeline));
    std::map<Machine::Size, ops::Work> sizes;
    const ops::WorkObserver observer([&](const ops::Work& work) {
        sizes.try_emplace({work.kind, work.rows, work.columns, work.terms}, work);
    });
    for (const int rank : planned_ranks(mesh)) {
        comm::Recording recording;
        train::record_step(options, mesh, rank, recording);
    }
    std::vector<ops::Work> work;
    for (const auto& [size, each] : sizes) work.push_back(each);
    return work;
}

/// Refuses what has no meaning for this processor's ranks, and more of them than anyone means.
void check_cpu(const config::PlanRequest& request) {
    const std::pair<const char*, bool> of_gpus[] = {{"product-share", request.product_share > 0},
                                                    {"gpu-memory", request.gpu_memory_gib > 0},
                                                    {"network", !request.network.empty()},
                                                    {"nvlink", !request.nvlink.empty()},
                                                    {"memory-speed", !request.memory_speed.empty()},
                                                    {"program", !request.program.empty()},
                                                    {"power", request.power > 0}};
    for (const auto& [option, given] : of_gpus) {
        if (given) throw UserError("--{} is for a GPU (--gpu): this processor is measured", option);
    }
    const int usual = std::max(8, static_cast<int>(std::thread::hardware_concurrency()));
    if (!request.device.empty() || request.num_ranks <= usual) return;
    throw UserError(
        "--gpus {} without --gpu would plan {} ranks on this processor; name the GPUs ({}), or --gpu {} if "
        "that is meant",
        request.num_ranks, request.num_ranks, fmt::join(gpu_names(), ", "), config::PlanRequest::kCpu);
}

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

/// The step that is planned in place of a whole one.
struct Part {
    int64_t num_microbatches = kAll;  // at most
    int64_t removed_layers = 0;       // of each stage
    int num_pipeline_ranks = 0;       // 0: all
};

Plan plan_part(const config::JobConfig& config, int num_ranks, const Machine& machine, const Part& part) {
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config), num_ranks);
    train::TrainerOptions options = trainer_options(config, mesh);
    const model::FlopsPerToken flops = model::flops_per_token(options.spec, config.training.seq_len);
    remove_layers(options, part.removed_layers);
    layout::MeshShape planned = mesh;
    if (part.num_pipeline_ranks > 0) {
        keep_stages(options, part.num_pipeline_ranks);
        planned.degrees[static_cast<int>(layout::Axis::Pipeline)] = part.num_pipeline_ranks;
    }
    options.num_microbatches = std::min(options.num_microbatches, part.num_microbatches);
    options.executor.graphs &=
        setup::uses_graphs(config, {.has_experts = options.spec.experts.has_value(),
                                    .several_nodes = num_ranks > machine.ranks_per_node});
    Plan plan{.title = setup::model_title(config.model, options.spec),
              .mesh = mesh,
              .machine = machine,
              .tokens = setup::batch_sizes(config, mesh).global_tokens()};
    std::vector<RankTrace> traces;
    for (const int rank : planned_ranks(planned))
        traces.push_back(trace_rank(options, planned, rank, machine));
    const std::vector<RankTime> times = simulate_step(traces);
    std::vector<AllToAllWaits> waits = all_to_all_waits(traces, times);
    waits.resize(traces.size());
    for (size_t i = 0; i < traces.size(); ++i) {
        auto rows = tensor_collectives(traces[i], times[i], mesh.degree(layout::Axis::Tensor));
        traces[i].events = std::vector<Event>();  // clear() would keep their memory
        traces[i].launches = std::vector<Launch>();
        plan.ranks.push_back({std::move(traces[i]), times[i], std::move(rows), waits[i]});
        plan.ranks.back().time.exposed_of_launches = std::vector<double>();
    }
    const int expert_degree = mesh.degree(mesh.expert_axes);  // the busiest rank has all tokens at most
    if (expert_degree > 1)
        plan.planned_imbalance = std::min<double>(options.model.planned_imbalance, expert_degree);
    plan.peak_flops = machine.peak(at::kBFloat16);
    plan.compute_type = name_of(config.training.mixed_precision_param);
    plan.peak_ratio = plan.peak_flops / machine.peak(options.model.precision.compute);
    plan.model_flops = flops.causal * static_cast<double>(plan.tokens) / mesh.num_ranks();
    return plan;
}

int64_t microbatches_of_a_step(const config::JobConfig& config, int num_ranks) {
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config), num_ranks);
    return setup::batch_sizes(config, mesh).num_microbatches;
}

bool is_1f1b(const config::Parallelism& parallelism) {
    return parallelism.pipeline_parallel_schedule == config::PipelineSchedule::OneForwardOneBackward &&
           parallelism.pipeline_parallel_schedule_csv.empty();
}

/// Whether a step is not alike for all microbatches: a schedule that keeps every one, or names each.
bool needs_all_microbatches(const config::Parallelism& parallelism) {
    return parallelism.pipeline_parallel_schedule == config::PipelineSchedule::GPipe ||
           !parallelism.pipeline_parallel_schedule_csv.empty();
}

Plan finished(Plan plan) {
    plan.seconds = plan.slowest().time.total;
    return plan;
}

/// The plan of few microbatches and layers on the outer `num_stages` pipeline ranks, extended to all
/// microbatches and layers.
Plan rough_plan(const config::JobConfig& config, int num_ranks, const Machine& machine, int num_stages) {
    const config::Parallelism& mesh = config.parallelism;
    // Interleaved schedules need a multiple of the stages. A pipeline fills and empties in the first of them.
    // Without one, memory is largest in the third microbatch.
    constexpr int64_t kFull = 8;
    int64_t enough = num_stages == 1 ? 3 : num_stages * std::max<int64_t>(2, divide_up(kFull, num_stages));
    if (is_1f1b(mesh)) enough = std::min<int64_t>(enough, num_stages + 8);
    const int64_t all = microbatches_of_a_step(config, num_ranks);
    if (needs_all_microbatches(mesh)) enough = all;
    enough = std::min(enough, all);
    const layout::MeshShape shape = layout::resolve(setup::mesh_request(config), num_ranks);
    // An optimizer whose ranks own matrices does not take the same time for each layer.
    const bool is_linear = config.optimizer.name == config::OptimizerName::AdamW;
    const FewerLayers removed = is_linear ? fewer_layers(trainer_options(config, shape)) : FewerLayers();
    const int kept = num_stages == mesh.pipeline_parallel_degree ? 0 : num_stages;
    Plan plan = plan_part(config, num_ranks, machine, {enough, removed.few, kept});
    if (removed)
        plan = continued(std::move(plan), plan_part(config, num_ranks, machine, {enough, removed.many, kept}),
                         removed.factor());
    extend_times(plan, static_cast<double>(all) / static_cast<double>(enough));
    return plan;
}

}  // namespace

const RankPlan& Plan::fullest() const {
    return *std::ranges::max_element(ranks, {}, [](const RankPlan& rank) {
        return rank.trace.peak.bytes + rank.trace.shared_bytes + rank.trace.beside_bytes();
    });
}

const RankPlan& Plan::slowest() const {
    return *std::ranges::max_element(ranks, {}, [](const RankPlan& rank) { return rank.time.total; });
}

int64_t Plan::room_bytes() const {
    return std::max<int64_t>(machine.memory_bytes - machine.reserved_bytes - fullest().trace.beside_bytes(),
                             0);
}

bool Plan::fits() const { return machine.memory_bytes == 0 || peak_bytes() <= room_bytes(); }

Machine choose_machine(const config::JobConfig& config, const config::PlanRequest& request) {
    const auto find = [&] {
        if (request.device.empty() || request.device == config::PlanRequest::kCpu) {
            check_cpu(request);
            const at::ScalarType type = setup::scalar_type(config.training.mixed_precision_param);
            Machine processor =
                measure_processor(work_of_a_step(config, request.num_ranks), type, request.num_ranks);
            processor.ring_bytes = config.comm.shared_memory ? config.comm.shared_memory_mib * kMebi : 0;
            return processor;
        }
        Machine gpu = named_gpu(request);
        const auto limit = [](int& channels, int most) {
            channels = most > 0 ? std::min(channels, most) : channels;
        };
        limit(gpu.collective_channels, config.comm.collective_channels);
        limit(gpu.message_channels, config.comm.message_channels);
        gpu.peer_copies = config.comm.peer_copies;
        return gpu;
    };
    Machine machine = find();
    if (request.links.empty()) return machine;
    take_links(machine, request.links, request.num_ranks);
    const auto check_alone = [](const char* option, const std::string& words, const Links& links) {
        if (words.empty() || links.measured.empty()) return;
        throw UserError("{} {} and --links give the same links; leave one out", option, words);
    };
    check_alone("--network", request.network, machine.between_nodes);
    check_alone("--nvlink", request.nvlink, machine.in_node);
    return machine;
}

Plan make_plan(const config::JobConfig& config, int num_ranks, const Machine& machine) {
    // Schedules repeat themselves after as many microbatches as there are ranks, once the pipeline is full:
    // those of several stages a rank in their fourth round.
    constexpr int64_t kFull = 8;
    const int64_t period = config.parallelism.pipeline_parallel_degree;
    const int64_t full = is_1f1b(config.parallelism) ? period + kFull : std::max(3 * period, kFull);
    const int64_t all = microbatches_of_a_step(config, num_ranks), few = full + (all - full) % period,
                  many = few + period;
    if (all <= few + many || needs_all_microbatches(config.parallelism))
        return finished(plan_part(config, num_ranks, machine, {}));
    return finished(continued(plan_part(config, num_ranks, machine, {many}),
                              plan_part(config, num_ranks, machine, {few}),
                              static_cast<double>(all - many) / static_cast<double>(period)));
}

Plan make_rough_plan(const config::JobConfig& config, int num_ranks, const Machine& machine) {
    constexpr int kFew = 4, kMany = 8;  // pipeline ranks that stand for more
    const int num_stages = config.parallelism.pipeline_parallel_degree;
    // Other schedules, and lists of stages, may run several stages a rank.
    if (num_stages <= kMany || !is_1f1b(config.parallelism) ||
        !config.parallelism.pipeline_parallel_layers_per_stage.empty() ||
        microbatches_of_a_step(config, num_ranks) < num_stages)
        return finished(rough_plan(config, num_ranks, machine, num_stages));
    Plan longer = rough_plan(config, num_ranks, machine, kMany);
    const auto middle = longer.ranks.begin() + kFew / 2;  // the shorter one has the outer ranks
    longer.ranks.erase(middle, middle + kMany - kFew);
    return finished(continued(std::move(longer), rough_plan(config, num_ranks, machine, kFew),
                              static_cast<double>(num_stages - kMany) / (kMany - kFew)));
}

}  // namespace argosy::plan
