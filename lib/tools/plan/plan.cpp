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
#include "plan/fewer_layers.h"
#include "plan/gpus.h"
#include "setup/converters.h"
#include "setup/number_types.h"
#include "setup/options.h"
#include "train/dry_step.h"

namespace argosy::plan {
namespace {

/// The time of `factor` times as many microbatches. The pipeline fills and empties once; sums over replicas
/// and over the world come once in a step.
RankTime extended(RankTime time, double factor) {
    time.compute *= factor;
    time.total = time.compute + time.optimizer + time.bubble;
    for (auto& [group, seconds] : time.exposed) {
        if (group != "world" && group.find("dp_replicate") == group.npos) seconds *= factor;
        time.total += seconds;
    }
    return time;
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
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config.parallelism), num_ranks);
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
    const std::pair<const char*, bool> of_gpus[] = {
        {"product-share", request.product_share > 0},    {"gpu-memory", request.gpu_memory_gib > 0},
        {"network", !request.network.empty()},           {"nvlink", !request.nvlink.empty()},
        {"memory-speed", !request.memory_speed.empty()}, {"program", !request.program.empty()}};
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

/// Plans from a step of at most `max_microbatches`, and with fewer layers in each stage.
Plan plan_part(const config::JobConfig& config, int num_ranks, const Machine& machine,
               int64_t max_microbatches, int64_t removed_layers = 0) {
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config.parallelism), num_ranks);
    train::TrainerOptions options = trainer_options(config, mesh);
    const model::FlopsPerToken flops = model::flops_per_token(options.spec, config.training.seq_len);
    remove_layers(options, removed_layers);
    const int64_t planned = std::min(options.num_microbatches, max_microbatches);
    const double factor =
        static_cast<double>(std::exchange(options.num_microbatches, planned)) / static_cast<double>(planned);
    Plan plan{.title = setup::model_title(config.model, options.spec),
              .mesh = mesh,
              .machine = machine,
              .tokens = setup::batch_sizes(config, mesh).global_tokens()};
    std::vector<RankTrace> traces;
    for (const int rank : planned_ranks(mesh)) traces.push_back(trace_rank(options, mesh, rank, machine));
    const std::vector<RankTime> times = simulate_step(traces);
    for (size_t i = 0; i < traces.size(); ++i) {
        plan.ranks.push_back({std::move(traces[i]), extended(times[i], factor)});
        plan.seconds = std::max(plan.seconds, plan.ranks.back().time.total);
    }
    plan.peak_flops = machine.peak(at::kBFloat16);
    plan.compute_type = name_of(config.training.mixed_precision_param);
    plan.peak_ratio = plan.peak_flops / machine.peak(options.model.precision.compute);
    plan.model_flops = flops.causal * static_cast<double>(plan.tokens) / mesh.num_ranks();
    return plan;
}

}  // namespace

const RankPlan& Plan::fullest() const {
    return *std::ranges::max_element(
        ranks, {}, [](const RankPlan& rank) { return rank.trace.peak.bytes + rank.trace.shared_bytes; });
}

const RankPlan& Plan::slowest() const {
    return *std::ranges::max_element(ranks, {}, [](const RankPlan& rank) { return rank.time.total; });
}

int64_t Plan::room_bytes() const {
    return machine.memory_bytes == 0 ? 0 : machine.memory_bytes - machine.reserved_bytes;
}

bool Plan::fits() const { return room_bytes() == 0 || peak_bytes() <= room_bytes(); }

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
        return named_gpu(request);
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
    return plan_part(config, num_ranks, machine, kAll);
}

Plan make_rough_plan(const config::JobConfig& config, int num_ranks, const Machine& machine) {
    const config::Parallelism& mesh = config.parallelism;
    const int64_t num_stages = mesh.pipeline_parallel_degree;
    // Interleaved schedules need a multiple of the stages. A pipeline fills and empties in the first of them.
    // Without one, memory is largest in the third microbatch.
    constexpr int64_t kFull = 8;
    int64_t enough = num_stages == 1 ? 3 : num_stages * std::max<int64_t>(2, divide_up(kFull, num_stages));
    if (mesh.pipeline_parallel_schedule == config::PipelineSchedule::OneForwardOneBackward)
        enough = std::min(enough, num_stages + 8);
    if (mesh.pipeline_parallel_schedule == config::PipelineSchedule::GPipe ||
        !mesh.pipeline_parallel_schedule_csv.empty()) {
        enough = kAll;
    }
    const layout::MeshShape shape = layout::resolve(setup::mesh_request(mesh), num_ranks);
    // An optimizer whose ranks own matrices does not take the same time for each layer.
    const bool is_linear = config.optimizer.name == config::OptimizerName::AdamW;
    const FewerLayers removed = is_linear ? fewer_layers(trainer_options(config, shape)) : FewerLayers();
    Plan plan = plan_part(config, num_ranks, machine, enough, removed.few);
    if (removed) {
        plan = with_all_layers(std::move(plan), plan_part(config, num_ranks, machine, enough, removed.many),
                               removed);
    }
    for (RankPlan& rank : plan.ranks) {  // they are most of a plan's memory, which clear() would keep
        rank.trace.events = std::vector<Event>();
        rank.trace.launches = std::vector<Launch>();
        rank.time.exposed_of_launches = std::vector<double>();
    }
    return plan;
}

}  // namespace argosy::plan
