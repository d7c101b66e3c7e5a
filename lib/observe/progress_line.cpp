#include "observe/progress_line.h"

#include <fmt/format.h>

#include <cmath>

namespace argosy::observe {
namespace {

/// `value` in `width` places, with as many of `decimals` as fit; exponents for what is too large or vanishes.
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

/// "  219.3k"
std::string with_unit(double value) {
    constexpr const char* kUnits[] = {" ", "k", "M", "G"};
    int unit = 0;
    for (; unit < 3 && value >= 999.95; ++unit) value /= 1000;
    return column(value, 5, 1) + kUnits[unit];
}

std::string percent(double part, double whole) {
    return whole > 0 ? fmt::format("{:5.1f}%", 100 * part / whole) : fmt::format("{:>6}", "-");
}

/// "   1:02:03", hours first.
std::string duration(double seconds) {
    constexpr double kMostHours = 9999;
    if (!(seconds >= 0 && seconds < kMostHours * 3600)) return fmt::format("{:>10}", "-");
    const int64_t whole = std::llround(seconds);
    return fmt::format("{:4}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string utilisation(const Speed& rates, PeakSource source) {
    if (!rates.mfu_causal) return "";
    return fmt::format("  {} {}%", source == PeakSource::MeasuredGemm ? "of GEMM" : "MFU",
                       column(100 * *rates.mfu_causal, 5, 1));
}

}  // namespace

std::string progress_line(const Progress& progress, const JobFigures& job) {
    const StepMetrics& newest = progress.newest;
    const StepTimes& times = progress.window_times;
    const Speed rates = speed(progress.window_tokens, times.total_ms / 1e3, job);
    const double memory_gib = static_cast<double>(progress.window_peak_bytes) / (1 << 30);
    std::string line = fmt::format("step {:>{}}/{}  loss {}  norm {}  lr {:8.2e}", newest.step,
                                   fmt::formatted_size("{}", progress.num_steps), progress.num_steps,
                                   column(newest.loss, 8, 4), column(newest.grad_norm, 8, 4), newest.lr);
    line += fmt::format("  {} tokens/s  {} TFLOP/s{}  {} GiB", with_unit(rates.tokens_per_second),
                        column(rates.model_tflops_per_device, 7, 4), utilisation(rates, job.peak.source),
                        column(memory_gib, 7, 3));
    line += fmt::format("  data {} compute {} exposed {} optimizer {}",
                        percent(times.data_ms, times.total_ms), percent(times.compute_ms, times.total_ms),
                        percent(times.all_exposed_ms(), times.total_ms),
                        percent(times.optimizer_ms, times.total_ms));
    line += fmt::format("  ETA {}", duration(progress.seconds_left));
    if (newest.skipped_updates > 0) line += fmt::format("  skipped {}", newest.skipped_updates);
    return line;
}

}  // namespace argosy::observe
