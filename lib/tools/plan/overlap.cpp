#include "plan/overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "comm/values.h"
#include "cuda/device.h"
#include "plan/gpus.h"
#include "setup/graphs.h"
#include "setup/process.h"

namespace argosy::plan {
namespace {

using config::JobConfig;
using config::Switch;

constexpr const char* kOnProcessors = "processors move the data themselves";

OverlapChoice off(const std::string& why) { return {.text = "async tensor parallelism off: " + why}; }

/// The choice for the device of this rank, which is a GPU.
OverlapChoice choose_for_gpu(const JobConfig& config, const setup::RankContext& context, int ranks_per_node) {
    const std::string name = cuda::describe_device(cuda::current_device()).name;
    std::optional<Machine> machine = machine_of_gpu(name, context.world->size());
    if (!machine) return off(fmt::format("no plan knows {}; true in place of auto turns it on", name));
    machine->ranks_per_node = ranks_per_node;
    try {
        return choose_overlap(config, context.world->size(), *machine);
    } catch (const std::exception& error) {  // the other ranks wait for the choice
        return off(fmt::format("there is no plan: {}", error.what()));
    }
}

bool has_choice(const JobConfig& config) {
    return config.parallelism.enable_async_tensor_parallel == Switch::Auto &&
           config.parallelism.tensor_parallel_degree > 1;
}

}  // namespace

std::string tensor_text(const Plan& plan) {
    const RankPlan& rank = plan.slowest();
    const std::vector<TensorCollective> rows = rank.tensor_collectives;
    if (rows.empty()) return "";
    size_t width = 6;
    for (const TensorCollective& row : rows) width = std::max(width, row.group.size());
    std::string text = fmt::format(
        "collectives of tensor and expert parallelism, rank {}, a step (links: without waits; exposed: the "
        "rank waits):\n"
        "  {:<{}} {:<9} {:<20} {:<24} {:>6} {:>9} {:>9} {:>10}  overlaps with products\n",
        rank.trace.rank, "group", width, "pass", "for", "collective", "number", "MiB", "links ms",
        "exposed ms");
    for (const TensorCollective& row : rows) {
        text += fmt::format(
            "  {:<{}} {:<9} {:<20} {:<24} {:>6} {:>9.4g} {:>9.3g} {:>10.3g}  {}\n", row.group, width,
            row.pass, row.work, std::string(comm::kind_name(row.kind)) + (row.in_parts ? " in parts" : ""),
            row.number, static_cast<double>(std::max(row.moved.sent, row.moved.received)) / kMebi,
            1e3 * row.seconds, 1e3 * row.exposed_seconds, row.why_not.empty() ? "yes" : "no: " + row.why_not);
    }
    return text;
}

std::optional<Machine> machine_of_gpu(const std::string& driver_name, int num_ranks) {
    std::optional<std::string> name = gpu_of_device(driver_name);
    if (!name) return std::nullopt;
    if (name == "a100" && driver_name.find("40GB") != driver_name.npos) name = "a100:40";
    return named_gpu(config::PlanRequest{.num_ranks = num_ranks, .device = *name});
}

OverlapChoice choose_overlap(const JobConfig& config, int num_ranks, const Machine& machine) {
    if (!machine.is_gpu) return off(kOnProcessors);
    constexpr double kMinGain = 0.02;  // of a step's time; a plan's error is larger, but alike for both
    const auto seconds = [&](Switch value) {
        JobConfig tried = config;
        tried.parallelism.enable_async_tensor_parallel = value;
        return make_rough_plan(tried, num_ranks, machine).seconds;
    };
    const double gain = 1 - seconds(Switch::On) / seconds(Switch::Off);
    const bool on = gain > kMinGain;
    return {
        on ? Switch::On : Switch::Off,
        fmt::format("async tensor parallelism {}: the plan for {} predicts that a step takes {:.1f} % {} "
                    "time with it{}",
                    on ? "on" : "off", machine.name, 100 * std::abs(gain), gain < 0 ? "more" : "less",
                    !on && gain > 0 ? fmt::format(", and {:.0f} % are the minimum", 100 * kMinGain) : "")};
}

ChosenConfig with_overlap_chosen(const JobConfig& config, int num_ranks, const Machine& machine) {
    if (!has_choice(config)) return {config};
    const std::string why_off = machine.is_gpu ? setup::why_no_overlap(config) : "";
    OverlapChoice choice = why_off.empty() ? choose_overlap(config, num_ranks, machine) : off(why_off);
    ChosenConfig found{config, std::move(choice.text)};
    found.config.parallelism.enable_async_tensor_parallel = choice.value;
    return found;
}

JobConfig with_overlap_chosen(const JobConfig& config, const mpi::Comm& ranks,
                              const setup::RankContext& context) {
    if (!has_choice(config)) return config;
    const int ranks_per_node = ranks.place_on_node().num_ranks;
    comm::Communicator& control = *context.control;
    const std::string why_off =
        setup::computes_on_gpu() ? setup::why_no_overlap(config, setup::graph_facts(config, ranks, context))
                                 : kOnProcessors;
    JobConfig with_choice = config;
    Switch& value = with_choice.parallelism.enable_async_tensor_parallel;
    if (control.rank() == 0) {
        const OverlapChoice choice =
            why_off.empty() ? choose_for_gpu(config, context, ranks_per_node) : off(why_off);
        spdlog::info("{}", choice.text);
        value = choice.value;
    }
    value = comm::broadcast(control, value);
    return with_choice;
}

}  // namespace argosy::plan
