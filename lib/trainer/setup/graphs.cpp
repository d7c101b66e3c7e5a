#include "setup/graphs.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/values.h"
#include "cuda/device.h"
#include "nccl/comm.h"
#include "setup/options.h"
#include "setup/process.h"

namespace argosy::setup {
namespace {

using config::Switch;

constexpr const char* kNoneOfExperts =
    "the model has experts: the host may read how many tokens each of them has, which a graph cannot record";
constexpr const char* kNoneOfPeerCopies =
    "comm.peer_copies numbers the exchanges of async tensor parallelism, and a graph would repeat its "
    "numbers";

/// Whether anything else than graphs themselves keeps a run from recording them.
bool may_have_graphs(const config::JobConfig& config) {
    return config.compile.enable && config.compile.graphs != Switch::Off && !config.debug.plain_operations;
}

/// The setting because of which forward and backward send messages between neighbours; empty without one.
std::string setting_with_messages(const config::Parallelism& parallelism) {
    if (parallelism.pipeline_parallel_degree > 1)
        return fmt::format("parallelism.pipeline_parallel_degree = {}", parallelism.pipeline_parallel_degree);
    if (parallelism.context_parallel_degree > 1 &&
        parallelism.context_parallel_rotate_method != config::RotateMethod::AllGather)
        return fmt::format("parallelism.context_parallel_rotate_method = {}",
                           name_of(parallelism.context_parallel_rotate_method));
    if (parallelism.tensor_parallel_degree > 1 && parallelism.enable_async_tensor_parallel == Switch::On)
        return "parallelism.enable_async_tensor_parallel = true";
    return "";
}

/// Why no graph can record forward and backward; null if one can.
const char* obstacle(const config::JobConfig& config, const GraphFacts& facts) {
    if (facts.has_experts) return kNoneOfExperts;
    const config::Parallelism& parallelism = config.parallelism;
    const bool exchanges =
        parallelism.tensor_parallel_degree > 1 && parallelism.enable_async_tensor_parallel == Switch::On;
    return config.comm.peer_copies && exchanges ? kNoneOfPeerCopies : nullptr;
}

/// Why graphs may hang with the setting, because of which a rank sends messages; empty if they do not.
std::string why_graphs_hang(const std::string& setting, const GraphFacts& facts) {
    if (setting.empty() || nccl::runs_recorded_at_once(facts.nccl_version, facts.driver_version)) return "";
    return fmt::format("with {}, graphs may hang under NCCL {} and a driver for CUDA {}", setting,
                       nccl::version_text(facts.nccl_version), cuda::version_text(facts.driver_version));
}

}  // namespace

bool uses_graphs(const config::JobConfig& config, const GraphFacts& facts) {
    if (!may_have_graphs(config)) return false;
    const char* const why_none = obstacle(config, facts);
    if (config.compile.graphs == Switch::On) {
        if (!why_none) return true;
        throw UserError("compile.graphs = true: {}; set compile.graphs = auto or false", why_none);
    }
    const bool were_tried = config.parallelism.pipeline_parallel_degree == 1 && !facts.several_nodes;
    return were_tried && !why_none;
}

GraphChoice choose_graphs(const config::JobConfig& config, const GraphFacts& facts) {
    if (!may_have_graphs(config)) return {};
    const bool on = uses_graphs(config, facts);
    if (const char* const why_none = obstacle(config, facts)) return {.why_off = why_none};
    const std::string why = why_graphs_hang(setting_with_messages(config.parallelism), facts);
    if (config.compile.graphs == Switch::On) {
        if (why.empty()) return {.on = true};
        throw UserError(
            "compile.graphs = true: {}, which run the operations of a graph one after the other; install "
            "NCCL "
            "{} or newer and a driver for CUDA {} or newer, or set compile.graphs = auto",
            why, nccl::version_text(nccl::kMinVersionForGraphs),
            cuda::version_text(nccl::kMinDriverForGraphs));
    }
    if (!why.empty()) return {.why_off = why};
    if (on) return {.on = true};
    const char* const where = config.parallelism.pipeline_parallel_degree > 1
                                  ? "between stages on several GPUs"
                                  : "on several nodes";
    return {.why_off = fmt::format("graphs were not tried {}; compile.graphs = true turns them on", where)};
}

std::string why_no_overlap(const config::JobConfig& config, const std::optional<GraphFacts>& facts) {
    if (!may_have_graphs(config) || config.compile.graphs != Switch::On) return "";
    if (config.comm.peer_copies) return kNoneOfPeerCopies;
    if (!facts) return "";
    config::Parallelism overlapping;
    overlapping.tensor_parallel_degree = 2;
    overlapping.enable_async_tensor_parallel = Switch::On;
    return why_graphs_hang(setting_with_messages(overlapping), *facts);
}

GraphFacts graph_facts(const config::JobConfig& config, const mpi::Comm& ranks, const RankContext& context) {
    const auto lowest = [&](int own) { return -static_cast<int>(comm::maximum(*context.control, -own)); };
    return {.has_experts = choose_model(config.model).experts.has_value(),
            .several_nodes = !ranks.within_one_node(),
            .nccl_version = lowest(nccl::version()),
            .driver_version = lowest(cuda::driver_version())};
}

config::JobConfig with_graphs_chosen(const config::JobConfig& config, const mpi::Comm& ranks,
                                     const RankContext& context) {
    if (!computes_on_gpu()) return config;
    const GraphChoice choice = choose_graphs(config, graph_facts(config, ranks, context));
    if (!choice.why_off.empty() && context.control->rank() == 0)
        spdlog::info("no CUDA graphs: {}", choice.why_off);
    config::JobConfig with_choice = config;
    if (config.compile.graphs == Switch::Auto)
        with_choice.compile.graphs = choice.on ? Switch::On : Switch::Off;
    return with_choice;
}

}  // namespace argosy::setup
