#include "observe/metrics.h"

#include <utility>

#include "base/units.h"
#include "observe/metrics_writer.h"

namespace argosy::observe {
namespace {

Json tera_flops(const PeakFlops& peak) {
    return peak.known() ? json_number(peak.flops_per_second / 1e12) : Json(nullptr);
}

Json time_object(const StepTimes& times) {
    Json exposed = Json::object();
    for (const auto& [axes, ms] : times.exposed_ms) exposed[axes] = json_number(ms);
    return {{"total", json_number(times.total_ms)},
            {"data", json_number(times.data_ms)},
            {"compute", json_number(times.compute_ms)},
            {"optimizer", json_number(times.optimizer_ms)},
            {"exposed", std::move(exposed)},
            {"checkpoint", json_number(times.checkpoint_ms)},
            {"other", json_number(times.other_ms)}};
}

Json norm_object(const std::vector<std::pair<std::string, double>>& norms) {
    Json object = Json::object();
    for (const auto& [unit, norm] : norms) object[unit] = json_number(norm);
    return object;
}

}  // namespace

bool StepMetrics::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }

Speed speed(int64_t tokens, double seconds, const JobFigures& job) {
    Speed speed;
    speed.tokens_per_second = static_cast<double>(tokens) / seconds;
    speed.tokens_per_second_per_device = speed.tokens_per_second / job.num_devices;
    const double causal_flops = speed.tokens_per_second_per_device * job.flops_per_token.causal;
    const double noncausal_flops = speed.tokens_per_second_per_device * job.flops_per_token.noncausal;
    speed.model_tflops_per_device = causal_flops / 1e12;
    if (job.peak().known()) {
        speed.mfu_causal = causal_flops / job.peak().flops_per_second;
        speed.mfu_noncausal = noncausal_flops / job.peak().flops_per_second;
    }
    if (job.measured.known()) speed.of_gemm = causal_flops / job.measured.flops_per_second;
    return speed;
}

std::string json_line(const StepMetrics& metrics, const JobFigures& job) {
    const Speed rates = speed(metrics.tokens, metrics.times.total_ms / 1e3, job);
    Json line = {
        {"step", metrics.step},
        {"loss", json_number(metrics.loss)},
        {"grad_norm", json_number(metrics.grad_norm)},
        {"lr", json_number(metrics.lr)},
        {"finite", metrics.finite()},
        {"tokens", metrics.tokens},
        {"tokens_per_second", json_number(rates.tokens_per_second)},
        {"tokens_per_second_per_device", json_number(rates.tokens_per_second_per_device)},
        {"model_tflops_per_device", json_number(rates.model_tflops_per_device)},
        {"mfu_causal", json_number(rates.mfu_causal)},
        {"mfu_noncausal", json_number(rates.mfu_noncausal)},
        {"peak_flops_source", peak_source_name(job.peak().source)},
        {"datasheet_tflops", tera_flops(job.datasheet)},
        {"measured_gemm_tflops", tera_flops(job.measured)},
        {"memory_peak_gib", gibibytes(metrics.memory.peak_bytes)},
        {"rss_gib", gibibytes(metrics.memory.rss_bytes)},
        {"time_ms", time_object(metrics.times)},
        {"checkpoint_stall_ms", json_number(metrics.times.checkpoint_ms)},
        {"skipped_updates", metrics.skipped_updates},
        {"loss_scale", json_number(metrics.loss_scale)},
    };
    line["memory_reserved_gib"] =
        metrics.memory.allocator ? Json(gibibytes(metrics.memory.allocator->peak_reserved_bytes)) : Json();
    line["memory_retries"] = metrics.memory.allocator ? Json(metrics.memory.allocator->num_retries) : Json();
    if (!metrics.layer_grad_norms.empty()) line["layer_grad_norms"] = norm_object(metrics.layer_grad_norms);
    return line.dump();
}

}  // namespace argosy::observe
