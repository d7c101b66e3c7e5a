#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "observe/peak_flops.h"
#include "observe/shortage.h"
#include "setup/element_types.h"
#include "setup/setup.h"
#include "train/dry_step.h"

namespace argosy::plan {
namespace {

using nlohmann::ordered_json;

std::string gib(int64_t bytes) { return observe::gibibytes_text(bytes); }

/// "27.1 GiB weights, 1.2 GiB gathered": the parts that are not 0.
std::string memory_parts(const PeakMemory& peak) {
    const std::pair<const char*, int64_t> parts[] = {
        {"weights", peak.held.weights},         {"their copies for computation", peak.held.copies},
        {"gradients", peak.held.gradients},     {"optimizer states", peak.held.moments},
        {"gathered units", peak.held.gathered}, {"activations and the rest", peak.other_bytes()}};
    std::vector<std::string> texts;
    for (const auto& [name, bytes] : parts) {
        if (bytes > 0) texts.push_back(fmt::format("{} {}", name, gib(bytes)));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

/// The parts of a step's time, largest first: "compute 71 %, dp_shard 12 %".
std::string time_parts(const RankTime& time) {
    std::vector<std::pair<double, std::string>> parts = {
        {time.compute, "compute"}, {time.optimizer, "optimizer"}, {time.bubble, "waiting for other stages"}};
    for (const auto& [group, seconds] : time.exposed) parts.emplace_back(seconds, "exposed " + group);
    std::ranges::sort(parts, std::greater<>());
    std::vector<std::string> texts;
    for (const auto& [seconds, name] : parts) {
        const double share = 100 * seconds / time.total;
        if (share >= 0.1) texts.push_back(fmt::format("{} {:.1f} %", name, share));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

ordered_json memory_json(const PeakMemory& peak) {
    return {{"peak_bytes", peak.bytes},         {"moment", peak.moment},
            {"weights", peak.held.weights},     {"copies", peak.held.copies},
            {"gradients", peak.held.gradients}, {"moments", peak.held.moments},
            {"gathered", peak.held.gathered},   {"other", peak.other_bytes()}};
}

ordered_json rank_json(const RankPlan& rank) {
    const auto compute = [&](ops::WorkKind kind) {
        const auto found = rank.trace.compute_seconds.find(kind);
        return found == rank.trace.compute_seconds.end() ? 0.0 : found->second;
    };
    ordered_json moved = ordered_json::object();
    for (const auto& [group, bytes] : rank.trace.moved)
        moved[group] = {{"sent", bytes.sent}, {"received", bytes.received}};
    const RankTime& time = rank.time;
    return {{"rank", rank.trace.rank},
            {"memory", memory_json(rank.trace.peak)},
            {"moved_bytes", std::move(moved)},
            {"flops", rank.trace.flops},
            {"seconds",
             {{"total", time.total},
              {"compute", time.compute},
              {"optimizer", time.optimizer},
              {"bubble", time.bubble},
              {"exposed", time.exposed.empty() ? ordered_json::object() : ordered_json(time.exposed)},
              {"products", compute(ops::WorkKind::Product)},
              {"attention", compute(ops::WorkKind::Attention) + compute(ops::WorkKind::AttentionBackward)},
              {"passes", compute(ops::WorkKind::Pass)}}}};
}

/// The time of `factor` times as many microbatches: the pipeline fills and empties once.
RankTime extended(RankTime time, double factor) {
    time.compute *= factor;
    time.total = time.compute + time.optimizer + time.bubble;
    for (auto& [group, seconds] : time.exposed) {
        seconds *= factor;
        time.total += seconds;
    }
    return time;
}

train::TrainerOptions trainer_options(const config::JobConfig& config, const layout::MeshShape& mesh) {
    return setup::trainer_options(config, setup::choose_model(config.model), mesh);
}

/// One work of each size that the first rank of each stage does.
std::vector<ops::Work> work_of_a_step(const config::JobConfig& config, int num_ranks) {
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config.parallelism), num_ranks);
    train::TrainerOptions options = trainer_options(config, mesh);
    options.num_microbatches =
        std::min<int64_t>(options.num_microbatches, mesh.degree(layout::Axis::Pipeline));
    std::map<Machine::Size, ops::Work> sizes;
    const ops::WorkObserver observer([&](const ops::Work& work) {
        sizes.try_emplace({work.kind, work.rows, work.columns, work.terms}, work);
    });
    for (int stage = 0; stage < mesh.degree(layout::Axis::Pipeline); ++stage) {
        comm::Recording recording;
        train::record_step(options, mesh, mesh.rank({stage, 0, 0, 0, 0}), recording);
    }
    std::vector<ops::Work> work;
    for (const auto& [size, each] : sizes) work.push_back(each);
    return work;
}

/// Plans from a step of at most `max_microbatches`.
Plan plan_microbatches(const config::JobConfig& config, int num_ranks, const Machine& machine,
                       int64_t max_microbatches) {
    const layout::MeshShape mesh = layout::resolve(setup::mesh_request(config.parallelism), num_ranks);
    train::TrainerOptions options = trainer_options(config, mesh);
    const int64_t planned = std::min(options.num_microbatches, max_microbatches);
    const double factor =
        static_cast<double>(std::exchange(options.num_microbatches, planned)) / static_cast<double>(planned);
    Plan plan{.title = setup::model_title(config.model, options.spec),
              .mesh = mesh,
              .machine = machine,
              .tokens = setup::batch_sizes(config, mesh).global_tokens};
    std::vector<RankTrace> traces;
    layout::Coordinates first = {};
    for (int& stage = first[static_cast<int>(layout::Axis::Pipeline)];
         stage < mesh.degree(layout::Axis::Pipeline); ++stage) {
        traces.push_back(trace_rank(options, mesh, mesh.rank(first), machine));
    }
    const std::vector<RankTime> times = simulate_step(traces);
    for (size_t i = 0; i < traces.size(); ++i) {
        plan.ranks.push_back({std::move(traces[i]), extended(times[i], factor)});
        plan.seconds = std::max(plan.seconds, plan.ranks.back().time.total);
    }
    plan.peak_flops = machine.peak(options.precision.compute);
    plan.model_flops = observe::flops_per_token(options.spec, config.training.seq_len).causal *
                       static_cast<double>(plan.tokens) / mesh.num_ranks();
    return plan;
}

}  // namespace

const RankPlan& Plan::fullest() const {
    return *std::ranges::max_element(ranks, {}, [](const RankPlan& rank) { return rank.trace.peak.bytes; });
}

const RankPlan& Plan::slowest() const {
    return *std::ranges::max_element(ranks, {}, [](const RankPlan& rank) { return rank.time.total; });
}

int64_t Plan::room_bytes() const {
    return machine.memory_bytes == 0 ? 0 : machine.memory_bytes - machine.reserved_bytes;
}

bool Plan::fits() const { return room_bytes() == 0 || fullest().trace.peak.bytes <= room_bytes(); }

Machine choose_machine(const config::JobConfig& config, const config::PlanRequest& request, int num_ranks) {
    if (request.device == config::PlanRequest::kCpu) {
        const at::ScalarType type = setup::scalar_type(config.training.mixed_precision_param);
        return measure_processor(work_of_a_step(config, num_ranks), type, num_ranks);
    }
    auto machine = find_machine(request.device);
    if (!machine) {
        throw UserError("--gpu {} is unknown; known are {} and {}", request.device,
                        fmt::join(machine_names(), ", "), config::PlanRequest::kCpu);
    }
    machine->ranks_per_node = request.gpus_per_node;
    return *machine;
}

Plan make_plan(const config::JobConfig& config, int num_ranks, const Machine& machine) {
    return plan_microbatches(config, num_ranks, machine, std::numeric_limits<int64_t>::max());
}

Plan make_rough_plan(const config::JobConfig& config, int num_ranks, const Machine& machine) {
    return plan_microbatches(config, num_ranks, machine, 2 * config.parallelism.pipeline_parallel_degree);
}

std::string plan_text(const Plan& plan) {
    const RankPlan& fullest = plan.fullest();
    const PeakMemory& peak = fullest.trace.peak;
    const RankPlan& slowest =
        *std::ranges::max_element(plan.ranks, {}, [](const RankPlan& rank) { return rank.time.total; });
    std::string text = fmt::format("{} on {} x {} ({}), {} on a node\n", plan.title, plan.mesh.num_ranks(),
                                   plan.machine.name, plan.mesh.name(), plan.machine.ranks_per_node);
    text += fmt::format("memory    {} at most, rank {}, in {}: {}\n", gib(peak.bytes), fullest.trace.rank,
                        peak.moment, memory_parts(peak));
    if (plan.room_bytes() > 0) {
        text += fmt::format("          {}: a device has {}, of which {} are left for tensors\n",
                            plan.fits() ? "fits" : "DOES NOT FIT", gib(plan.machine.memory_bytes),
                            gib(plan.room_bytes()));
    }
    text += fmt::format("step      {:.3g} s (estimate): {}\n", slowest.time.total, time_parts(slowest.time));
    text +=
        fmt::format("speed     {:.0f} tokens/s, {:.0f} a device, {:.1f} % of the peak of {:.4g} TFLOP/s\n",
                    plan.tokens_per_second(), plan.tokens_per_second() / plan.mesh.num_ranks(),
                    100 * plan.utilisation(), plan.peak_flops / 1e12);
    for (const auto& [group, bytes] : slowest.trace.moved) {
        text += fmt::format("traffic   {}: a rank sends {} and receives {} a step\n", group, gib(bytes.sent),
                            gib(bytes.received));
    }
    return text;
}

std::string plan_json(const Plan& plan) {
    ordered_json ranks = ordered_json::array();
    for (const RankPlan& rank : plan.ranks) ranks.push_back(rank_json(rank));
    const ordered_json json = {
        {"model", plan.title},
        {"mesh", plan.mesh.name()},
        {"machine", plan.machine.name},
        {"num_ranks", plan.mesh.num_ranks()},
        {"ranks_per_node", plan.machine.ranks_per_node},
        {"fits", plan.fits()},
        {"memory_room_bytes", plan.room_bytes()},
        {"step_seconds", plan.seconds},
        {"tokens", plan.tokens},
        {"tokens_per_second", plan.tokens_per_second()},
        {"tokens_per_second_per_device", plan.tokens_per_second() / plan.mesh.num_ranks()},
        {"mfu_causal", plan.utilisation()},
        {"ranks", std::move(ranks)}};
    return json.dump(2) + "\n";
}

}  // namespace argosy::plan
