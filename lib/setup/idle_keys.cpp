// Settings that a run's devices or its mesh leave without an effect.
#include <string>

#include "base/log.h"
#include "setup/setup.h"

namespace argosy::setup {
namespace {

/// Names the keys of [parallelism] that differ from their defaults and divide work along an axis of one rank.
void log_idle_parallelism_keys(const config::Parallelism& given, const comm::Mesh& mesh) {
    using layout::Axis;
    const config::Parallelism defaults;
    const auto report = [&](layout::AxisSet axes, const char* degree, bool changed, const char* key) {
        if (!changed || mesh.degree(axes) > 1) return;
        spdlog::info("parallelism.{} has no effect: {} is 1", key, degree);
    };
    const auto tensor = [&](auto key, const char* name) {
        report(Axis::Tensor, "parallelism.tensor_parallel_degree", given.*key != defaults.*key, name);
    };
    const auto context = [&](auto key, const char* name) {
        report(Axis::Context, "parallelism.context_parallel_degree", given.*key != defaults.*key, name);
    };
    using P = config::Parallelism;
    tensor(&P::enable_async_tensor_parallel, "enable_async_tensor_parallel");
    tensor(&P::disable_loss_parallel, "disable_loss_parallel");
    context(&P::context_parallel_rotate_method, "context_parallel_rotate_method");
    context(&P::context_parallel_load_balancer, "context_parallel_load_balancer");
    report(layout::kShardAxes, "the number of ranks that share a parameter",
           given.fsdp_reshard_after_forward != defaults.fsdp_reshard_after_forward,
           "fsdp_reshard_after_forward");
}

void log_idle_compile_keys(const config::JobConfig& config, const comm::Mesh& mesh) {
    const config::Compile &given = config.compile, defaults;
    const bool on_gpu = computes_on_gpu(), plain = config.debug.plain_operations;
    const auto report = [](const char* key, const char* reason) {
        if (reason != nullptr) spdlog::info("compile.{} has no effect: {}", key, reason);
    };
    const char* for_all = plain ? "debug.plain_operations is true" : nullptr;
    const char* for_gpus = on_gpu ? for_all : "no rank computes on a GPU";
    const char* for_graphs = for_gpus != nullptr || given.enable ? for_gpus : "compile.enable is false";
    if (given.enable != defaults.enable) report("enable", for_all);
    if (given.graphs != defaults.graphs) report("graphs", for_graphs);
    if (given.search_algorithms != defaults.search_algorithms) report("search_algorithms", for_gpus);
    // Between a unit's weight gradients and the next unit comes the wait for their reduction.
    const bool waits = mesh.degree(layout::kShardAxes) > 1 && mesh.degree(layout::Axis::Pipeline) == 1;
    const char* for_streams =
        waits ? "a layer's sharded gradients are reduced as soon as they are there" : nullptr;
    if (given.side_stream != defaults.side_stream) report("side_stream", for_gpus ? for_gpus : for_streams);
    if (on_gpu && uses_graphs(config) && !mesh.world().recordable()) {
        report("graphs", "ranks exchange data through host memory, which graphs cannot contain");
    }
}

void log_idle_profiling_keys(const config::Profiling& given) {
    const config::Profiling defaults;
    if (!given.enable_profiling && given.save_traces_folder != defaults.save_traces_folder)
        spdlog::info("profiling.save_traces_folder has no effect: profiling.enable_profiling is false");
    if (!given.enable_profiling && !given.enable_memory_snapshot &&
        given.profile_freq != defaults.profile_freq) {
        spdlog::info(
            "profiling.profile_freq has no effect: profiling.enable_profiling and "
            "enable_memory_snapshot are false");
    }
}

}  // namespace

void log_idle_keys(const config::JobConfig& config, const comm::Mesh& mesh) {
    log_idle_parallelism_keys(config.parallelism, mesh);
    log_idle_compile_keys(config, mesh);
    log_idle_profiling_keys(config.profiling);
}

}  // namespace argosy::setup
