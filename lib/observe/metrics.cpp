#include "observe/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"

namespace argosy::observe {
namespace {

using Json = nlohmann::ordered_json;  // its text has null for infinity and NaN, which JSON lacks

Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

Json tera_flops(const PeakFlops& peak) { return peak.known() ? Json(peak.flops_per_second / 1e12) : Json(); }

Json time_object(const StepTimes& times) {
    Json exposed = Json::object();
    for (const auto& [axes, ms] : times.exposed_ms) exposed[axes] = ms;
    Json object = {{"total", times.total_ms}};
    for (const StepPart& part : kStepParts) {
        object[part.name] = times.*part.ms;
        if (part.ms == &StepTimes::optimizer_ms) object["exposed"] = std::move(exposed);
    }
    return object;
}

Json kinds_object(const std::array<double, kNumComputeKinds>& kinds_ms) {
    Json object = Json::object();
    for (int i = 0; i < kNumComputeKinds; ++i) object[name_of(static_cast<ComputeKind>(i))] = kinds_ms[i];
    return object;
}

Json types_object(const JobFigures& job) {
    const auto& [compute, master, reduce] = job.number_types;
    Json types = {{"compute", compute}, {"master", master}, {"reduce", reduce}};
    if (!job.product_casts.empty()) types["products"] = job.product_casts;
    return types;
}

Json norm_object(const std::vector<std::pair<std::string, double>>& norms) {
    Json object = Json::object();
    for (const auto& [unit, norm] : norms) object[unit] = norm;
    return object;
}

Json metrics_object(const TaskMetrics& task) {
    Json object = Json::object();
    for (const auto& [metric, value, error] : task.values) {
        object[metric] = value;
        if (error) object[metric + "_stderr"] = *error;
    }
    return object;
}

/// `value` in `width` characters, with `decimals` decimals or as many as fit. Very large and tiny values use
/// exponents.
std::string column(double value, int width, int decimals) {
    if (!std::isfinite(value)) return fmt::format("{:>{}}", value, width);
    const auto fits = [&](const std::string& text) { return text.size() <= static_cast<size_t>(width); };
    const bool vanishes = value != 0 && std::abs(value) < std::pow(10, -decimals);
    if (!vanishes) {
        for (int places = decimals; places >= 0; --places) {
            if (auto text = fmt::format("{:{}.{}f}", value, width, places); fits(text)) return text;
        }
    }
    for (int places = 2; places > 0; --places) {
        if (auto text = fmt::format("{:{}.{}e}", value, width, places); fits(text)) return text;
    }
    return fmt::format("{:{}.0e}", value, width);
}

/// A number with k, M or G for thousands: "219.3k".
std::string with_unit(double value) {
    constexpr const char* kUnits[] = {" ", "k", "M", "G"};
    int unit = 0;
    for (; unit < 3 && value >= 999.95; ++unit) value /= 1000;
    return column(value, 5, 1) + kUnits[unit];
}

std::string percent(double part, double whole) {
    return whole > 0 ? fmt::format("{:5.1f}%", 100 * part / whole) : fmt::format("{:>6}", "-");
}

/// "   1:02:03": hours, minutes, seconds.
std::string duration(double seconds) {
    constexpr double kMaxHours = 9999;
    if (!(seconds >= 0 && seconds < kMaxHours * 3600)) return fmt::format("{:>10}", "-");
    const int64_t whole = std::llround(seconds);
    return fmt::format("{:4}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

/// " 12.5% (dp_shard  10.0%, tp   2.5%)". A run's mesh axes are the same in every line.
std::string exposed_by_axes(const StepTimes& times) {
    std::string axes;
    for (const auto& [name, ms] : times.exposed_ms) {
        axes += fmt::format("{}{} {}", axes.empty() ? "" : ", ", name, percent(ms, times.total_ms));
    }
    return percent(times.all_exposed_ms(), times.total_ms) + (axes.empty() ? "" : " (" + axes + ")");
}

/// MFU against the datasheet's peak and the share of the measured peak, each only if known.
std::string utilisation(const Speed& rates, const JobFigures& job) {
    const auto share = [](const char* name, double part) {
        return fmt::format("  {} {}%", name, column(100 * part, 5, 1));
    };
    std::string text;
    if (job.datasheet.known()) text += share("MFU", *rates.mfu_causal);
    if (rates.of_compute_type && job.compute_datasheet.flops_per_second < job.datasheet.flops_per_second)
        text += share(("of " + job.number_types[0]).c_str(), *rates.of_compute_type);
    if (rates.of_gemm) text += share("of GEMM", *rates.of_gemm);
    return text;
}

std::string step_of_steps(int64_t step, int64_t final_step) {
    return fmt::format("step {:>{}}/{}", step, fmt::formatted_size("{}", final_step), final_step);
}

std::string step_of_steps(const StepWindow& window) {
    return step_of_steps(window.newest.step, window.final_step);
}

std::string gibibyte_column(int64_t bytes) { return fmt::format("{} GiB", column(gibibytes(bytes), 7, 3)); }

}  // namespace

bool StepMetrics::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }

Speed speed(int64_t tokens, double seconds, const JobFigures& job) {
    Speed result;
    result.tokens_per_second = static_cast<double>(tokens) / seconds;
    result.tokens_per_second_per_device = result.tokens_per_second / job.num_devices;
    const double causal_flops = result.tokens_per_second_per_device * job.flops_per_token.causal;
    const double noncausal_flops = result.tokens_per_second_per_device * job.flops_per_token.noncausal;
    result.model_tflops_per_device = causal_flops / 1e12;
    if (job.peak().known()) {
        result.mfu_causal = causal_flops / job.peak().flops_per_second;
        result.mfu_noncausal = noncausal_flops / job.peak().flops_per_second;
    }
    if (job.compute_datasheet.known())
        result.of_compute_type = causal_flops / job.compute_datasheet.flops_per_second;
    if (job.measured.known()) result.of_gemm = causal_flops / job.measured.flops_per_second;
    return result;
}

std::string json_line(const StepMetrics& metrics, const JobFigures& job) {
    const Speed rates = speed(metrics.tokens, metrics.times.total_ms / 1e3, job);
    Json line = {
        {"step", metrics.step},
        {"loss", metrics.loss},
        {"grad_norm", metrics.grad_norm},
        {"lr", metrics.lr},
        {"finite", metrics.finite()},
        {"tokens", metrics.tokens},
        {"tokens_per_second", rates.tokens_per_second},
        {"tokens_per_second_per_device", rates.tokens_per_second_per_device},
        {"model_tflops_per_device", rates.model_tflops_per_device},
        {"mfu_causal", number_or_null(rates.mfu_causal)},
        {"mfu_noncausal", number_or_null(rates.mfu_noncausal)},
        {"peak_flops_source", peak_source_name(job.peak().source)},
        {"datasheet_tflops", tera_flops(job.datasheet)},
        {"number_types", types_object(job)},
        {"compute_type_tflops", tera_flops(job.compute_datasheet)},
        {"mfu_compute_type", number_or_null(rates.of_compute_type)},
        {"measured_gemm_tflops", tera_flops(job.measured)},
        {"memory_peak_gib", gibibytes(metrics.memory.peak_bytes)},
        {"rss_gib", gibibytes(metrics.memory.rss_bytes)},
        {"time_ms", time_object(metrics.times)},
        {"checkpoint_stall_ms", metrics.times.checkpoint_ms},
        {"skipped_updates", metrics.skipped_updates},
        {"loss_scale", number_or_null(metrics.loss_scale)},
    };
    const auto& allocator = metrics.memory.allocator;
    line["memory_reserved_gib"] = allocator ? Json(gibibytes(allocator->peak_reserved_bytes)) : Json();
    line["memory_retries"] = allocator ? Json(allocator->num_retries) : Json();
    if (metrics.times.bubble_ms) line["bubble_ms"] = *metrics.times.bubble_ms;
    if (metrics.times.compute_kinds_ms)
        line["compute_kinds_ms"] = kinds_object(*metrics.times.compute_kinds_ms);
    if (!metrics.layer_grad_norms.empty()) line["layer_grad_norms"] = norm_object(metrics.layer_grad_norms);
    if (metrics.validation) {
        line["validation_loss"] = metrics.validation->loss;
        line["validation_perplexity"] = std::exp(metrics.validation->loss);
        line["validation_tokens"] = metrics.validation->num_tokens;
    }
    for (const TaskMetrics& task : metrics.evaluation) line["evaluation"][task.task] = metrics_object(task);
    if (metrics.baseline_tokens_per_second)
        line["efficiency"] = rates.tokens_per_second / *metrics.baseline_tokens_per_second;
    return line.dump();
}

std::string peak_line(const JobFigures& job) {
    const double measured = job.measured.flops_per_second;
    const std::string text = fmt::format("matrix products reach {:.4g} TFLOP/s here", measured / 1e12);
    const double datasheet = job.compute_datasheet.flops_per_second;
    if (!job.compute_datasheet.known()) return text;
    return fmt::format("{}, {:.1f}% of the datasheet's {:g}", text, 100 * measured / datasheet,
                       datasheet / 1e12);
}

std::string validation_line(const StepMetrics& metrics, int64_t final_step) {
    const auto& [loss, num_tokens] = *metrics.validation;
    return fmt::format("{}  validation loss {}  perplexity {}  {} tokens in {:.3f} s",
                       step_of_steps(metrics.step, final_step), column(loss, 8, 4),
                       column(std::exp(loss), 8, 3), num_tokens, metrics.times.validation_ms / 1e3);
}

std::string evaluation_line(const StepMetrics& metrics, const TaskMetrics& task, int64_t final_step) {
    std::string line = fmt::format("{}  {}", step_of_steps(metrics.step, final_step), task.task);
    for (const auto& [metric, value, error] : task.values) {
        line += fmt::format("  {} {:.4f}", metric, value);
        if (error) line += fmt::format(" +- {:.4f}", *error);
    }
    return line;
}

std::string log_line(const StepWindow& window, const JobFigures& job) {
    const StepMetrics& newest = window.newest;
    const StepTimes& times = window.times;
    const Speed rates = speed(window.tokens, times.total_ms / 1e3, job);
    std::string line = fmt::format("{}  loss {}  norm {}  lr {:8.2e}", step_of_steps(window),
                                   column(newest.loss, 8, 4), column(newest.grad_norm, 8, 4), newest.lr);
    line += fmt::format("  {} tokens/s  {} TFLOP/s{}  {}", with_unit(rates.tokens_per_second),
                        column(rates.model_tflops_per_device, 7, 4), utilisation(rates, job),
                        gibibyte_column(window.peak_bytes));
    if (window.reserved_bytes) {
        line += fmt::format(" of {} reserved", gibibyte_column(*window.reserved_bytes));
    }
    line +=
        fmt::format("  data {} compute {} exposed {}{} optimizer {}", percent(times.data_ms, times.total_ms),
                    percent(times.compute_ms, times.total_ms), exposed_by_axes(times),
                    times.bubble_ms ? " bubble " + percent(*times.bubble_ms, times.total_ms) : "",
                    percent(times.optimizer_ms, times.total_ms));
    // Minimum share of the time that is shown. Steps that only poll for the end of a save take less.
    constexpr double kMinShown = 0.001;
    if (times.checkpoint_ms > kMinShown * times.total_ms) {
        line += " checkpoint " + percent(times.checkpoint_ms, times.total_ms);
    }
    if (times.validation_ms > kMinShown * times.total_ms) {
        line += " validation " + percent(times.validation_ms, times.total_ms);
    }
    if (times.evaluation_ms > kMinShown * times.total_ms) {
        line += " evaluation " + percent(times.evaluation_ms, times.total_ms);
    }
    line += fmt::format("  ETA {}", duration(window.seconds_left));
    if (newest.memory.allocator && newest.memory.allocator->num_retries > 0) {
        line += fmt::format("  allocator retries {}", newest.memory.allocator->num_retries);
    }
    if (newest.skipped_updates > 0) line += fmt::format("  skipped {}", newest.skipped_updates);
    return line;
}

std::string live_text(const StepWindow& window, const JobFigures& job) {
    const StepMetrics& newest = window.newest;
    const Speed rates = speed(newest.tokens, window.step_seconds, job);
    return fmt::format("{} {}  ETA {}  loss {}  {} tokens/s{}  {}", step_of_steps(window),
                       percent(static_cast<double>(newest.step), static_cast<double>(window.final_step)),
                       duration(window.seconds_left), column(newest.loss, 8, 4),
                       with_unit(rates.tokens_per_second), utilisation(rates, job),
                       gibibyte_column(newest.memory.peak_bytes));
}

}  // namespace argosy::observe
