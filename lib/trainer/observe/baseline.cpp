#include "observe/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/median.h"
#include "base/strict_json.h"
#include "comm/values.h"

namespace argosy::observe {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMinCounted = 10;  // steps of either run
constexpr size_t kNewestSteps = 50;
constexpr double kMinNoise = 0.02;
constexpr double kStandardErrors = 3;
constexpr double kSameFlops = 1e-6;               // relative difference of equal models
constexpr std::streamoff kNewestBytes = 1 << 20;  // about 170 lines with the norms of 126 layers

template <class... Args>
[[noreturn]] void refuse(const std::string& path, fmt::format_string<Args...> text, Args&&... args) {
    throw Error(
        ExitCode::BadInput, Reach::OneRank,
        fmt::format("metrics.baseline = {}: {}", path, fmt::format(text, std::forward<Args>(args)...)));
}

/// Runs with different values cannot be compared.
struct Workload {
    int64_t tokens = 0;  // of a step
    int num_devices = 1;
    double flops_per_token = 0;   // causal; it depends on the model and the sequence length
    double datasheet_tflops = 0;  // of a device; 0: unknown

    /// Whether a device has as many tokens.
    bool has_same_share(const Workload& other) const {
        return tokens * other.num_devices == other.tokens * num_devices;
    }
};

/// 0 for a value that is missing or null.
double number_at(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

StepTimes times_of(const Json& line) {
    StepTimes times;
    const auto found = line.find("time_ms");
    if (found == line.end() || !found->is_object()) return times;
    times.total_ms = number_at(*found, "total");
    for (const StepPart& part : kStepParts) times.*part.ms = number_at(*found, part.name);
    const auto exposed = found->find("exposed");
    if (exposed == found->end() || !exposed->is_object()) return times;
    for (const auto& [axes, ms] : exposed->items())
        times.exposed_ms[axes] = number_at(*exposed, axes.c_str());
    return times;
}

Workload workload_of(const Json& line) {
    const double by_device = number_at(line, "tokens_per_second_per_device");
    Workload workload{.tokens = static_cast<int64_t>(number_at(line, "tokens"))};
    if (by_device > 0) {
        workload.num_devices =
            static_cast<int>(std::lround(number_at(line, "tokens_per_second") / by_device));
        workload.flops_per_token = 1e12 * number_at(line, "model_tflops_per_device") / by_device;
    }
    workload.datasheet_tflops = number_at(line, "datasheet_tflops");
    return workload;
}

/// How the workloads differ; empty if they do not.
std::string difference(const Workload& there, const Workload& here) {
    if (!there.has_same_share(here)) {
        return fmt::format("{} tokens a step on {} devices there, {} on {} here", there.tokens,
                           there.num_devices, here.tokens, here.num_devices);
    }
    if (std::abs(there.flops_per_token - here.flops_per_token) > kSameFlops * here.flops_per_token) {
        return fmt::format("another model or sequence length: {:.6g} FLOPs for a token there, {:.6g} here",
                           there.flops_per_token, here.flops_per_token);
    }
    if (std::abs(there.datasheet_tflops - here.datasheet_tflops) > kSameFlops * here.datasheet_tflops) {
        const auto text = [](double peak) {
            return peak > 0 ? fmt::format("{:.4g} TFLOP/s", peak) : "an unknown peak";
        };
        return fmt::format("other devices: {} there, {} here", text(there.datasheet_tflops),
                           text(here.datasheet_tflops));
    }
    return "";
}

struct EarlierRun {
    StepSpeeds speeds;    // as if it had had the devices of `workload`
    int num_devices = 0;  // that it had
};

/// Reads the end of the file. The newest line says the workload; lines with other numbers of tokens for a
/// device do not count. A killed process leaves incomplete lines, which do not count either.
EarlierRun read_speeds(const std::string& path, const std::filesystem::path& metrics,
                       const Workload& workload) {
    errno = 0;
    std::ifstream file(metrics, std::ios::binary | std::ios::ate);
    if (!file) {
        refuse(path, "{} cannot be read: {}; name the metrics.jsonl or the dump folder of an earlier run",
               metrics.string(), std::strerror(errno));
    }
    const std::streamoff size = file.tellg();
    file.seekg(std::max<std::streamoff>(0, size - kNewestBytes));
    EarlierRun earlier;
    Json newest;
    for (std::string text; std::getline(file, text);) {
        Json line;
        try {
            line = parse_json(text, path);
        } catch (const UserError&) {
            continue;
        }
        if (!line.is_object() || number_at(line, "step") < 1 || times_of(line).total_ms <= 0) continue;
        if (workload_of(line).has_same_share(workload)) {
            earlier.speeds.add(static_cast<int64_t>(number_at(line, "step")),
                               line.value("counts_for_speed", Json(true)) != Json(false), workload.tokens,
                               times_of(line));
        }
        newest = std::move(line);
    }
    if (newest.is_null())
        refuse(path, "{} has no line of a step; name the metrics.jsonl of an earlier run", metrics.string());
    const std::string wrong = difference(workload_of(newest), workload);
    if (!wrong.empty()) refuse(path, "runs of different work cannot be compared: {}", wrong);
    earlier.num_devices = workload_of(newest).num_devices;
    return earlier;
}

}  // namespace

void StepSpeeds::add(int64_t step, bool counts, int64_t tokens, const StepTimes& times) {
    while (!steps_.empty() && steps_.back().step >= step) steps_.pop_back();
    if (!counts) return;
    steps_.push_back({step, 1e3 * static_cast<double>(tokens) / times.total_ms, times});
    if (steps_.size() > kNewestSteps) steps_.pop_front();
}

std::vector<double> StepSpeeds::speeds() const {
    std::vector<double> speeds;
    for (const Step& step : steps_) speeds.push_back(step.tokens_per_second);
    return speeds;
}

double StepSpeeds::median() const { return argosy::median(speeds()); }

double StepSpeeds::standard_error() const {
    constexpr double kSigmas = 1.4826, kOfMedian = 1.2533;
    const double middle = median();
    std::vector<double> deviations;
    for (const double speed : speeds()) deviations.push_back(std::abs(speed - middle));
    return kOfMedian * kSigmas * argosy::median(std::move(deviations)) /
           std::sqrt(static_cast<double>(size()));
}

StepParts StepSpeeds::parts() const {
    std::map<std::string, std::vector<double>> values;
    for (const Step& step : steps_) {
        for (const auto& [part, ms] : parts_of(step.times)) values[part].push_back(ms);
    }
    StepParts medians;
    for (auto& [part, ms] : values) medians[part] = argosy::median(std::move(ms));
    return medians;
}

Comparison compare(const StepSpeeds& earlier, const StepSpeeds& run, const std::string& name) {
    if (std::min(earlier.size(), run.size()) < kMinCounted) {
        return {Change::TooFewSteps,
                fmt::format("too few steps to compare with {}: {} there and {} here count, and {} are needed "
                            "(the first {} do not count, nor steps that save, validate or evaluate)",
                            name, earlier.size(), run.size(), kMinCounted, kStartUpSteps)};
    }
    const double before = earlier.median(), now = run.median(), change = now / before - 1;
    const double noise = std::max(
        kMinNoise, kStandardErrors * std::hypot(earlier.standard_error(), run.standard_error()) / before);
    const std::string figures = fmt::format(
        "{:.5g} tokens/s, {:.1f} % {} than {} with {:.5g} (medians of {} and {} steps; noise {:.1f} %)", now,
        100 * std::abs(change), change < 0 ? "less" : "more", name, before, run.size(), earlier.size(),
        100 * noise);
    if (change >= -noise) return {Change::None, figures};
    const std::string growth = growth_text(earlier.parts(), run.parts());
    return {Change::Slower, fmt::format("slower than the baseline: {}{}", figures,
                                        growth.empty() ? "" : ". " + growth + " a step")};
}

Baseline::Baseline(const std::string& path, const std::string& own_folder, int64_t tokens,
                   const JobFigures& job, int rank)
    : path_(path), num_devices_(job.num_devices) {
    if (path.empty() || rank != 0) return;
    std::error_code unreadable;
    std::filesystem::path metrics = path;
    if (std::filesystem::is_directory(metrics, unreadable)) metrics /= "metrics.jsonl";
    if (std::filesystem::equivalent(metrics, std::filesystem::path(own_folder) / "metrics.jsonl", unreadable))
        refuse(path, "this is the file that the run itself writes; name another run's, or a copy");
    const Workload workload{tokens, job.num_devices, job.flops_per_token.causal,
                            job.datasheet.flops_per_second / 1e12};
    EarlierRun earlier = read_speeds(path, metrics, workload);
    earlier_devices_ = earlier.num_devices;
    earlier_ = std::move(earlier.speeds);
    if (earlier_->size() > 0) earlier_tokens_per_second_ = earlier_->median();
    if (earlier_->size() >= kMinCounted) return;
    spdlog::warn(
        "metrics.baseline = {}: the number of its steps that count is {}, and {} are needed, so this run "
        "will not be compared",
        path, earlier_->size(), kMinCounted);
}

void Baseline::add(const StepMetrics& step) {
    if (earlier_) run_.add(step.step, step.counts_for_speed(), step.tokens, step.times);
}

Comparison Baseline::comparison() const {
    if (earlier_devices_ == num_devices_) return compare(*earlier_, run_, path_);
    Comparison found =
        compare(*earlier_, run_,
                fmt::format("{} scaled from {} to {} devices", path_, earlier_devices_, num_devices_));
    if (found.change == Change::Slower) found.change = Change::None;
    return found;
}

ExitCode Baseline::compare_run(comm::Communicator& control) const {
    if (path_.empty()) return ExitCode::Done;
    ExitCode code = ExitCode::Done;
    if (earlier_) {
        const auto [change, text] = comparison();
        const auto level = change == Change::Slower        ? spdlog::level::err
                           : change == Change::TooFewSteps ? spdlog::level::warn
                                                           : spdlog::level::info;
        spdlog::log(level, "{}", text);
        if (change == Change::Slower) code = ExitCode::CheckFailed;
    }
    return static_cast<ExitCode>(comm::maximum(control, static_cast<int64_t>(code)));
}

}  // namespace argosy::observe
