#include "observe/tensorboard.h"

#include <fmt/format.h>

#include "base/units.h"

namespace argosy::observe {
namespace {

void add_rates(std::vector<Scalar>& scalars, const Progress& progress, const JobFigures& job) {
    const Speed rates = speed(progress.window_tokens, progress.window_times.total_ms / 1e3, job);
    const double noncausal_flops = rates.tokens_per_second_per_device * job.flops_per_token.noncausal;
    scalars.push_back({"throughput(tps)", rates.tokens_per_second_per_device});
    scalars.push_back({"tflops", noncausal_flops / 1e12});
    if (job.datasheet.known()) scalars.push_back({"mfu(%)", 100 * *rates.mfu_noncausal});
    if (rates.of_gemm) scalars.push_back({"of_gemm(%)", 100 * *rates.of_gemm});
}

void add_times(std::vector<Scalar>& scalars, const Progress& progress) {
    const StepTimes& times = progress.window_times;
    const double steps_ms = 1e3 * static_cast<double>(progress.window_steps);
    const auto add = [&](const std::string& part, double ms) {
        scalars.push_back({fmt::format("time_metrics/{}(s)", part), ms / steps_ms});
    };
    add("end_to_end", times.total_ms);
    add("data_loading", times.data_ms);
    add("compute", times.compute_ms);
    add("optimizer", times.optimizer_ms);
    add("checkpoint", times.checkpoint_ms);
    add("other", times.other_ms);
    for (const auto& [axes, ms] : times.exposed_ms) add(fmt::format("exposed({})", axes), ms);
    scalars.push_back({"time_metrics/data_loading(%)", 100 * times.data_ms / times.total_ms});
}

}  // namespace

std::vector<Scalar> tensorboard_scalars(const Progress& progress, const JobFigures& job) {
    const StepMetrics& newest = progress.newest;
    std::vector<Scalar> scalars = {
        {"loss_metrics/global_avg_loss", newest.loss}, {"grad_norm", newest.grad_norm}, {"lr", newest.lr}};
    add_rates(scalars, progress, job);
    add_times(scalars, progress);
    scalars.push_back({"memory/max_active(GiB)", gibibytes(progress.window_peak_bytes)});
    scalars.push_back({"memory/rss(GiB)", gibibytes(newest.memory.rss_bytes)});
    if (newest.memory.allocator) {
        scalars.push_back(
            {"memory/max_reserved(GiB)", gibibytes(progress.window_reserved_bytes.value_or(0))});
        scalars.push_back(
            {"memory/num_alloc_retries", static_cast<double>(newest.memory.allocator->num_retries)});
    }
    return scalars;
}

}  // namespace argosy::observe
