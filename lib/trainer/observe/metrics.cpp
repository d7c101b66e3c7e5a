#include "observe/metrics.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/text.h"
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

Json experts_object(const model::ExpertFigures& experts, bool with_counts) {
    Json object = {{"layers", experts.layers},
                   {"load_max_over_mean", experts.load_max_over_mean()},
                   {"entropy", experts.entropy},
                   {"unused", experts.unused()}};
    if (!experts.bias_min.empty()) {
        object["bias_min"] = experts.bias_min;
        object["bias_max"] = experts.bias_max;
    }
    for (const auto& [name, loss] :
         {std::pair("sequence_loss", experts.sequence_loss), std::pair("step_loss", experts.step_loss),
          std::pair("z_loss", experts.z_loss)})
        if (loss) object[name] = *loss;
    if (experts.forced_balance) object["forced_balance"] = true;
    if (with_counts) object["counts"] = experts.counts;
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

/// "1:02:03": hours, minutes, seconds; "12h 03m" from 10 hours on, "12d 03h" from 100 hours on.
std::string duration(double seconds) {
    constexpr double kMaxDays = 100;
    if (!(seconds >= 0 && seconds < kMaxDays * 24 * 3600)) return fmt::format("{:>7}", "-");
    const int64_t whole = std::llround(seconds), minutes = whole / 60, hours = whole / 3600;
    if (hours < 10) return fmt::format("{}:{:02}:{:02}", hours, minutes % 60, whole % 60);
    if (hours < 100) return fmt::format("{}h {:02}m", hours, minutes % 60);
    return fmt::format("{:2}d {:02}h", hours / 24, hours % 24);
}

/// A part of a line. The lowest rank is that of the most important part.
struct Figure {
    int rank;
    std::string text;
};

/// The figures that fit into `max_columns`, in their order. A figure of a lower rank takes its place first.
std::string fitted(const std::vector<Figure>& figures, size_t max_columns) {
    std::vector<size_t> by_rank(figures.size());
    std::iota(by_rank.begin(), by_rank.end(), 0);
    std::ranges::stable_sort(by_rank, {}, [&](size_t i) { return figures[i].rank; });
    std::vector<bool> fits(figures.size());
    for (size_t columns = 0; const size_t i : by_rank) {
        fits[i] = columns + figures[i].text.size() <= max_columns;
        if (fits[i]) columns += figures[i].text.size();
    }
    std::string line;
    for (size_t i = 0; i < figures.size(); ++i) line += fits[i] ? figures[i].text : "";
    return line;
}

/// Shares of the peaks that are known: of the datasheet's ("MFU"), of that of the run's type if it is lower,
/// and of the measured peak. If none is known, the model TFLOP/s take the place of the first.
std::vector<std::string> utilisation(const Speed& rates, const JobFigures& job) {
    std::vector<std::string> shares;
    const auto add = [&](const std::string& name, double part) {
        shares.push_back(fmt::format("  {} {}%", name, column(100 * part, 5, 1)));
    };
    if (job.datasheet.known()) add("MFU", *rates.mfu_causal);
    if (rates.of_compute_type && job.compute_datasheet.flops_per_second < job.datasheet.flops_per_second)
        add("of " + job.number_types[0], *rates.of_compute_type);
    if (rates.of_gemm) add("of GEMM", *rates.of_gemm);
    if (shares.empty())
        shares.push_back(fmt::format("  {} TFLOP/s", column(rates.model_tflops_per_device, 5, 3)));
    return shares;
}

std::string step_of_steps(int64_t step, int64_t final_step) {
    return fmt::format("step {:>{}}/{}", step, fmt::formatted_size("{}", final_step), final_step);
}

}  // namespace

bool StepMetrics::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }

bool StepMetrics::counts_for_speed() const {
    constexpr double kMaxOtherWork = 0.01;  // share of the step
    const double other_ms = times.checkpoint_ms + times.validation_ms + times.evaluation_ms;
    return step_of_start > kStartUpSteps && other_ms <= kMaxOtherWork * times.total_ms;
}

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

std::string json_line(const StepMetrics& metrics, const JobFigures& job, bool has_log_line) {
    const Speed rates = speed(metrics.tokens, metrics.times.total_ms / 1e3, job);
    Json line = {
        {"step", metrics.step},
        {"loss", metrics.loss},
        {"grad_norm", metrics.grad_norm},
        {"lr", metrics.lr},
        {"finite", metrics.finite()},
        {"counts_for_speed", metrics.counts_for_speed()},
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
    };
    const auto& allocator = metrics.memory.allocator;
    line["memory_reserved_gib"] = allocator ? Json(gibibytes(allocator->peak_reserved_bytes)) : Json();
    line["memory_retries"] = allocator ? Json(allocator->num_retries) : Json();
    if (metrics.times.compute_kinds_ms)
        line["compute_kinds_ms"] = kinds_object(*metrics.times.compute_kinds_ms);
    if (!metrics.layer_grad_norms.empty()) line["layer_grad_norms"] = norm_object(metrics.layer_grad_norms);
    if (metrics.scores) {
        line["attention_scores"] = {{"largest", metrics.scores->largest},
                                    {"heads_too_large", metrics.scores->num_too_large}};
    }
    if (metrics.experts) line["experts"] = experts_object(*metrics.experts, has_log_line);
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
        line += fmt::format("  {} {}", metric, score_text(value));
        if (error) line += fmt::format(" +- {}", score_text(*error));
    }
    return line;
}

std::string log_line(const StepWindow& window, const JobFigures& job) {
    const StepMetrics& newest = window.newest;
    const StepTimes& times = window.times;
    const Speed rates = speed(window.tokens, times.total_ms / 1e3, job);
    const auto share = [&](const char* name, double ms) {
        return times.total_ms > 0 ? fmt::format("  {} {:3.0f}%", name, 100 * ms / times.total_ms)
                                  : fmt::format("  {}    -", name);
    };
    std::vector<Figure> figures = {{0, step_of_steps(newest.step, window.final_step)},
                                   {0, "  loss " + column(newest.loss, 6, 4)},
                                   {0, "  norm " + column(newest.grad_norm, 6, 4)},
                                   {5, fmt::format("  lr {:8.2e}", newest.lr)},
                                   {0, " " + with_unit(rates.tokens_per_second) + " tok/s"}};
    for (int rank = 2; const std::string& text : utilisation(rates, job))
        figures.push_back({std::exchange(rank, 7), text});
    figures.push_back({4, " " + column(gibibytes(window.peak_bytes), 5, 2) + " GiB"});
    if (!times.exposed_ms.empty()) figures.push_back({3, share("exposed", times.all_exposed_ms())});
    figures.push_back({6, share("data", times.data_ms)});
    if (newest.memory.allocator && newest.memory.allocator->num_retries > 0)
        figures.push_back({1, fmt::format("  retries {}", newest.memory.allocator->num_retries)});
    if (newest.skipped_updates > 0)
        figures.push_back({1, fmt::format("  skipped {}", newest.skipped_updates)});
    if (newest.experts) {
        if (newest.experts->forced_balance) figures.push_back({-1, "  FORCED BALANCE"});
        figures.push_back({1, fmt::format("  load {}", column(newest.experts->worst_load(), 4, 2))});
    }
    figures.push_back({0, "  ETA " + duration(window.seconds_left)});
    constexpr size_t kTerminalColumns = 120;
    return fitted(figures, kTerminalColumns - kMaxLogPrefix.size());
}

}  // namespace argosy::observe
