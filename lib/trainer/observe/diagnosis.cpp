#include "observe/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace argosy::observe {
namespace {

using layout::Axis;

// Smaller shares are the price of a setting, not a reason to change it.
constexpr double kNotableExposed = 0.10;
constexpr double kNotableStall = 0.05;  // of data and saves, which should cost nothing
constexpr double kNotableOptimizer = 0.15;
constexpr double kNotableValidation = 0.10;
constexpr double kUnexplainedBubble = 0.10;  // a pipeline's exposed share above its ideal bubble
constexpr double kTargetOfSaves = 0.02;      // the share of saves that a longer interval aims at
constexpr double kTargetOfValidation = 0.05;
constexpr size_t kMaxCauses = 6, kMaxGrownParts = 3;
constexpr int64_t kMinSteps = 10;     // of a run that is explained
constexpr size_t kMinWindows = 4;     // before a window that is compared
constexpr size_t kMaxWindows = 500;   // that are compared; older ones are forgotten
constexpr double kFall = 0.8;         // of the speed that nine of ten windows reach
constexpr double kGrownShare = 0.05;  // of a cause that explains a fall

/// The run, as the rules see it.
struct Case {
    const Observed& observed;
    const RunFacts& facts;

    double share(double ms) const { return observed.times.total_ms > 0 ? ms / observed.times.total_ms : 0; }
    /// The share of exposed communication of groups whose first axis has this name.
    double exposed(const std::string& axis) const {
        double sum = 0;
        for (const auto& [name, ms] : observed.times.exposed_ms) {
            if (name == axis || name.starts_with(axis + " ")) sum += ms;
        }
        return share(sum);
    }
    int degree(Axis axis) const { return facts.mesh.degree(axis); }
    int host_of(int rank) const {
        return facts.hosts.host_of_rank.empty() ? 0 : facts.hosts.host_of_rank[rank];
    }
    bool crosses_hosts(Axis axis) const {
        for (int rank = 0; std::cmp_less(rank, facts.hosts.host_of_rank.size()); ++rank) {
            layout::Coordinates first = facts.mesh.coordinates(rank);
            first[static_cast<int>(axis)] = 0;
            if (host_of(rank) != host_of(facts.mesh.rank(first))) return true;
        }
        return false;
    }
    /// The smallest number of ranks that a group has on one of its hosts.
    int degree_on_host(Axis axis) const {
        int least = degree(axis);
        for (int rank = 0; std::cmp_less(rank, facts.hosts.host_of_rank.size()); ++rank) {
            if (facts.mesh.coordinates(rank)[static_cast<int>(axis)] != 0) continue;
            std::map<int, int> on_host;
            for (const int member : facts.mesh.group(rank, axis)) ++on_host[host_of(member)];
            for (const auto& [host, count] : on_host) least = std::min(least, count);
        }
        return least;
    }
};

std::string percent_text(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// Three digits, or a whole number.
std::string short_number(double value) {
    return value < 100 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

std::string exposed_text(const char* axis, double share) {
    return fmt::format("exposed communication over {} takes {} of a step", axis, percent_text(share));
}

// The texts of the rules: the part and its share, then the cause if it is known, then the remedy.

std::string tensor_between_hosts(const Case& run, double) {
    const int on_host = run.degree_on_host(Axis::Tensor);
    const bool divides = on_host > 1 && run.degree(Axis::Tensor) % on_host == 0;
    return "the ranks of tp are on several nodes, whose network is many times slower than the links within "
           "a node: " +
           (divides ? fmt::format("--parallelism.tensor_parallel_degree={} keeps them on one", on_host)
                    : "give a node ranks with consecutive numbers, as many as a multiple of the degree");
}

std::string tensor_text(const Case& run, double share) {
    return exposed_text("tp", share) +
           (run.facts.overlaps_products
                ? fmt::format(": take a parallelism.tensor_parallel_degree smaller than {}",
                              run.degree(Axis::Tensor))
                : ": on GPUs --parallelism.enable_async_tensor_parallel=auto overlaps it with the products "
                  "where that gains, and pretrain --plan lists what each collective costs; a smaller "
                  "parallelism.tensor_parallel_degree has less of it");
}

std::string shard_text(const Case& run, double share) {
    const std::string text = exposed_text("dp_shard", share);
    const int on_host = run.degree_on_host(Axis::Shard), all = run.degree(Axis::Shard);
    if (run.crosses_hosts(Axis::Shard) && on_host > 1 && all % on_host == 0) {
        return fmt::format(
            "{}, which crosses nodes: shard within the node: --parallelism.data_parallel_shard_degree={} "
            "--parallelism.data_parallel_replicate_degree={}, if the memory suffices (pretrain --plan)",
            text, on_host, run.degree(Axis::Replicate) * all / on_host);
    }
    return text + ": a larger training.local_batch_size hides more of it" +
           (run.facts.reshards ? "; --parallelism.fsdp_reshard_after_forward=never gathers the weights once "
                                 "instead of twice, if the memory suffices"
                               : "");
}

std::string replicate_text(const Case&, double share) {
    return exposed_text("dp_replicate", share) +
           ": gradients are summed once a step, so a larger training.global_batch_size has less of it for "
           "each token";
}

std::string context_text(const Case& run, double share) {
    const char* const other = run.facts.rotate_method == "allgather" ? "ring" : "allgather";
    return exposed_text("cp", share) +
           fmt::format(
               ": try --parallelism.context_parallel_rotate_method={}, or a smaller "
               "parallelism.context_parallel_degree",
               other);
}

std::string expert_text(const Case&, double share) {
    return exposed_text("ep", share) +
           ", which includes waits for the rank with the busiest experts: even the loads with keys of [moe], "
           "or take a smaller parallelism.expert_parallel_degree, if the memory suffices (pretrain --plan)";
}

std::string pipeline_text(const Case& run, double share) {
    std::string text =
        fmt::format("waiting for other pipeline stages takes {} of a step", percent_text(share));
    if (!run.facts.pipeline) return text;
    const PipelineFacts& pipeline = *run.facts.pipeline;
    text += fmt::format("; the bubble of {} with {} microbatch{} is {}", pipeline.schedule,
                        pipeline.num_microbatches, pipeline.num_microbatches == 1 ? "" : "es",
                        percent_text(pipeline.bubble));
    if (pipeline.bubble_of_twice) {
        text += fmt::format(
            ": twice as many have {} (training.global_batch_size, or a smaller "
            "parallelism.pipeline_parallel_microbatch_size)",
            percent_text(*pipeline.bubble_of_twice));
    }
    if (!pipeline.better_schedule.empty()) {
        text += fmt::format("; --parallelism.pipeline_parallel_schedule={} has {}", pipeline.better_schedule,
                            percent_text(pipeline.better_bubble));
    }
    if (share - pipeline.bubble > kUnexplainedBubble) {
        text +=
            "; the rest is unequal stages or slow transfers: balance the stages with "
            "parallelism.pipeline_parallel_layers_per_stage";
    }
    return text;
}

std::string world_text(const Case&, double share) {
    return fmt::format(
        "waiting for the slowest rank at the end of a step takes {}: the ranks have unequal speeds or work; "
        "ranks.jsonl has the times of each",
        percent_text(share));
}

std::string data_text(const Case&, double share) {
    return fmt::format(
        "waiting for data takes {} of a step: copy the token files to a local or faster disk, "
        "and leave each rank a processor for reading",
        percent_text(share));
}

/// The number of steps between two pauses of training with which the pauses take the share `target` of the
/// time instead of `share`. A pause takes share / (1 - share) of the time of the `interval` steps before it.
int64_t longer_interval(int64_t interval, double share, double target) {
    const auto of_training = [](double part) { return part / (1 - part); };
    return static_cast<int64_t>(
        std::ceil(static_cast<double>(interval) * of_training(share) / of_training(target)));
}

std::string checkpoint_text(const Case& run, double share) {
    const int64_t longer = longer_interval(run.facts.checkpoint_interval, share, kTargetOfSaves);
    return fmt::format("saving stops training for {} of the time: {}--checkpoint.interval={} makes it {}",
                       percent_text(share),
                       run.facts.saves_async ? "" : "--checkpoint.async_mode=async saves in the background; ",
                       longer, percent_text(kTargetOfSaves));
}

std::string longer_freq_text(const Case& run, const char* what, const char* key, int64_t freq, double share) {
    if (freq >= run.observed.num_steps) {
        return fmt::format("{} after the last step takes {} of the time of so few steps", what,
                           percent_text(share));
    }
    const int64_t longer = longer_interval(freq, share, kTargetOfValidation);
    return fmt::format("{} takes {} of the time: --{}={} makes it about {}", what, percent_text(share), key,
                       longer, percent_text(kTargetOfValidation));
}

std::string validation_text(const Case& run, double share) {
    return longer_freq_text(run, "validation", "validation.freq", run.facts.validation_freq, share);
}

std::string evaluation_text(const Case& run, double share) {
    return longer_freq_text(run, "the evaluation of tasks", "evaluation.freq", run.facts.evaluation_freq,
                            share);
}

std::string optimizer_text(const Case& run, double share) {
    return fmt::format(
        "the optimizer takes {} of a step: a larger training.global_batch_size spreads it over "
        "more tokens{}",
        percent_text(share),
        run.degree(Axis::Replicate) > 1
            ? "; a larger parallelism.data_parallel_shard_degree gives each rank fewer weights"
            : "");
}

std::string allocator_text(const Case& run, double) {
    return fmt::format(
        "the GPU's memory was full {} times, and each time the allocator waited for the GPU: lower "
        "training.local_batch_size or set --activation_checkpoint.mode=full",
        run.observed.num_allocator_retries);
}

struct Rule {
    const char* name;
    double (*share)(const Case& run);
    double limit;  // the rule applies above this share
    std::string (*text)(const Case& run, double share);
};

constexpr Rule kRules[] = {
    {"tp between nodes", [](const Case& run) { return run.crosses_hosts(Axis::Tensor) ? 1.0 : 0.0; }, 0,
     tensor_between_hosts},
    {"tp", [](const Case& run) { return run.exposed("tp"); }, kNotableExposed, tensor_text},
    {"dp_shard", [](const Case& run) { return run.exposed("dp_shard"); }, kNotableExposed, shard_text},
    {"dp_replicate", [](const Case& run) { return run.exposed("dp_replicate"); }, kNotableExposed,
     replicate_text},
    {"cp", [](const Case& run) { return run.exposed("cp"); }, kNotableExposed, context_text},
    {"ep", [](const Case& run) { return run.exposed("ep"); }, kNotableExposed, expert_text},
    {"pp", [](const Case& run) { return run.exposed("pp"); }, kNotableExposed, pipeline_text},
    {"world", [](const Case& run) { return run.exposed("world"); }, kNotableExposed, world_text},
    {"data", [](const Case& run) { return run.share(run.observed.times.data_ms); }, kNotableStall, data_text},
    {"checkpoint", [](const Case& run) { return run.share(run.observed.times.checkpoint_ms); }, kNotableStall,
     checkpoint_text},
    {"validation", [](const Case& run) { return run.share(run.observed.times.validation_ms); },
     kNotableValidation, validation_text},
    {"evaluation", [](const Case& run) { return run.share(run.observed.times.evaluation_ms); },
     kNotableValidation, evaluation_text},
    {"optimizer", [](const Case& run) { return run.share(run.observed.times.optimizer_ms); },
     kNotableOptimizer, optimizer_text},
    {"allocator", [](const Case& run) { return run.observed.num_allocator_retries > 0 ? 1.0 : 0.0; }, 0,
     allocator_text},
};

/// The times in which a window trains: what it saves, validates and evaluates comes at other times.
StepTimes training_times(StepTimes times) {
    times.total_ms -= times.checkpoint_ms + times.validation_ms + times.evaluation_ms;
    times.checkpoint_ms = times.validation_ms = times.evaluation_ms = 0;
    return times;
}

}  // namespace

Observed& Observed::operator+=(const Observed& more) {
    times += more.times;
    num_steps += more.num_steps;
    tokens += more.tokens;
    num_allocator_retries += more.num_allocator_retries;
    return *this;
}

std::vector<Cause> diagnose(const Observed& observed, const RunFacts& facts) {
    std::vector<Cause> found;
    for (const std::string& text : facts.slow_settings) found.push_back({"settings", 1, text});
    for (const std::string& text : observed.slow_ranks) found.push_back({"slow ranks", 1, text});
    const Case run{observed, facts};
    for (const Rule& rule : kRules) {
        const double share = rule.share(run);
        if (share > rule.limit) found.push_back({rule.name, share, rule.text(run, share)});
    }
    std::ranges::stable_sort(found, std::greater<>(), &Cause::share);
    return found;
}

StepParts parts_of(const StepTimes& sums, int64_t num_steps) {
    StepParts parts;
    for (const StepPart& part : kStepParts) parts[part.words] = sums.*part.ms;
    for (const auto& [axes, ms] : sums.exposed_ms) parts["exposed " + axes] = ms;
    for (auto& [name, ms] : parts) ms /= static_cast<double>(num_steps);
    return parts;
}

std::string growth_text(const StepParts& before, const StepParts& now) {
    struct Growth {
        std::string part;
        double from_ms, more_ms;
    };
    std::vector<Growth> grown;
    for (const auto& [part, ms] : now) {
        const auto same = before.find(part);
        const double from = same == before.end() ? 0 : same->second;
        if (ms > from) grown.push_back({part, from, ms - from});
    }
    std::ranges::stable_sort(grown, std::greater<>(), &Growth::more_ms);
    if (grown.empty()) return "";
    const double least = 0.1 * grown.front().more_ms;  // smaller parts explain nothing
    std::vector<std::string> texts;
    for (const auto& [part, from, more] : grown) {
        if (texts.size() == kMaxGrownParts || more < least) break;
        const std::string share = from > 0 ? fmt::format(" ({:.0f} %)", 100 * more / from) : "";
        texts.push_back(fmt::format("{} takes {} ms{} more", part, short_number(more), share));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

Diagnosis::Diagnosis(RunFacts facts, const RankTimesOptions& ranks, const MetricsOptions& metrics,
                     comm::Communicator& control)
    : facts_(std::move(facts)), ranks_(ranks, metrics, control), explains_(control.rank() == 0) {
    facts_.hosts = ranks_.hosts();
}

void Diagnosis::add(const StepMetrics& step) {
    const bool window_ends = ranks_.add(step.step, step.times);
    if (!explains_) return;
    if (step.experts) experts_.add(step.step, *step.experts);
    const int64_t retries = step.memory.allocator ? step.memory.allocator->num_retries : 0;
    if (step.step_of_start > kStartUpSteps) {
        window_ += {.times = step.times,
                    .num_steps = 1,
                    .tokens = step.tokens,
                    .num_allocator_retries = retries - num_retries_};
    }
    num_retries_ = retries;
    if (window_ends && window_.num_steps > 0) end_window(step.step);
}

void Diagnosis::end_window(int64_t step) {
    Window now{.observed = window_};
    now.observed.times = training_times(window_.times);
    now.speed = 1e3 * static_cast<double>(window_.tokens) / now.observed.times.total_ms;
    if (windows_.size() >= kMinWindows) {
        std::vector<const Window*> sorted;
        for (const Window& each : windows_) sorted.push_back(&each);
        std::ranges::sort(sorted, {}, &Window::speed);
        const bool falls = now.speed < kFall * sorted[sorted.size() / 10]->speed;
        if (falls && (!fallen_to_ || now.speed < kFall * *fallen_to_)) {
            spdlog::warn("{}", fall_text(step, now, *sorted[(sorted.size() - 1) / 2]));
            fallen_to_ = now.speed;
        }
        if (!falls) fallen_to_.reset();
    }
    windows_.push_back(std::move(now));
    if (windows_.size() > kMaxWindows) windows_.pop_front();
    run_ += std::exchange(window_, {});
}

/// The parts that grew since the median window, and the causes that are new or have grown since.
std::string Diagnosis::fall_text(int64_t step, Window now, const Window& usual) const {
    now.observed.slow_ranks = ranks_.slow_ranks().now();
    const int64_t count = now.observed.num_steps;
    std::string text =
        count == 1 ? fmt::format("step {}", step) : fmt::format("steps {} to {}", step - count + 1, step);
    text += fmt::format(": throughput fell to {} of the run's median ({} instead of {} tokens/s)",
                        percent_text(now.speed / usual.speed), short_number(now.speed),
                        short_number(usual.speed));
    const std::string growth = growth_text(parts_of(usual.observed.times, usual.observed.num_steps),
                                           parts_of(now.observed.times, count));
    if (!growth.empty()) text += ": " + growth;
    const std::vector<Cause> known = diagnose(usual.observed, facts_);
    for (const Cause& found : diagnose(now.observed, facts_)) {
        const auto same = std::ranges::find(known, std::string_view(found.rule), &Cause::rule);
        if (same == known.end() || found.share > same->share + kGrownShare) text += "; " + found.text;
    }
    return text;
}

void Diagnosis::end() {
    run_ += std::exchange(window_, {});
    if (!explains_ || run_.num_steps + kStartUpSteps < kMinSteps) return;
    run_.slow_ranks = ranks_.slow_ranks().in_run();
    std::vector<Cause> found = diagnose(run_, facts_);
    if (found.size() > kMaxCauses) found.resize(kMaxCauses);
    for (const Cause& cause : found) spdlog::info("diagnosis ({}): {}", cause.rule, cause.text);
    experts_.end();
}

}  // namespace argosy::observe
