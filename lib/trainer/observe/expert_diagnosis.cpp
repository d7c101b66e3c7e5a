#include "observe/expert_diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/log.h"

namespace argosy::observe {
namespace {

constexpr int64_t kFirstSteps = 200;  // of a run: its experts are not balanced yet
constexpr int64_t kWindowSteps = 100;
constexpr int64_t kQuietSteps = 1000;  // without a fault, before it is a new one
constexpr int64_t kMinTokens = 30;     // of an expert in a window, on average: chance leaves none without
constexpr double kCollapsed = 0.1;     // of ln(experts): the entropy of fewer than 2 equal scores
constexpr double kFlat = 0.995;        // of ln(experts): above, the scores of a token hardly differ
constexpr double kLargestScore = 1;

int64_t sum_of(const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

/// The tokens of the rank with most tokens, over an equal share. Ranks have equally many consecutive experts.
double largest_part(const std::vector<int64_t>& counts, int num_parts) {
    const auto size = static_cast<int64_t>(counts.size()) / num_parts;
    int64_t largest = 0;
    for (auto part = counts.begin(); part != counts.end(); part += size)
        largest = std::max(largest, std::accumulate(part, part + size, int64_t{0}));
    const int64_t all = sum_of(counts);
    return all == 0 ? 0 : static_cast<double>(largest) * num_parts / static_cast<double>(all);
}

/// The window, as the rules see it.
struct RouterCase {
    const ExpertWindow& window;
    const std::optional<ExpertWindow>& before;
    const ExpertFacts& facts;

    double num_experts(size_t layer) const { return static_cast<double>(window.counts[layer].size()); }
    int64_t num_unused(size_t layer) const { return std::ranges::count(window.counts[layer], 0); }
    double load(size_t layer) const { return largest_part(window.counts[layer], facts.num_parts); }
    double max_entropy(size_t layer) const { return std::log(num_experts(layer)); }
    std::string steps() const { return fmt::format("steps {} to {}", window.first_step, window.last_step); }
    std::string balance() const {
        return fmt::format("raise moe.bias_update_rate ({:g} now) or moe.sequence_loss ({:g} now)",
                           facts.bias_update_rate, facts.sequence_loss);
    }
};

// The rules: how bad a layer is, 0 if it is not, and the text after the layer's name.

double unused(const RouterCase& run, size_t layer) {
    const double mean = static_cast<double>(sum_of(run.window.counts[layer])) / run.num_experts(layer);
    return mean < kMinTokens ? 0 : static_cast<double>(run.num_unused(layer));
}

std::string unused_text(const RouterCase& run, size_t layer) {
    return fmt::format("{} of {} experts got no tokens in {}: {}", run.num_unused(layer),
                       run.num_experts(layer), run.steps(), run.balance());
}

double uneven(const RouterCase& run, size_t layer) {
    const double load = run.facts.num_parts == 1 ? 0 : run.load(layer);
    return load > run.facts.planned_imbalance ? load : 0;
}

std::string uneven_text(const RouterCase& run, size_t layer) {
    const double in_a_step = run.window.part_load[layer];
    return fmt::format(
        "the rank with the busiest experts got {:.2f} times an equal share of the tokens in {} ({:.2f} in "
        "one step), "
        "more than moe.planned_imbalance = {:g}, for which memory is planned: {}, or see whether pretrain "
        "--plan "
        "--moe.planned_imbalance={:.1f} still fits",
        run.load(layer), run.steps(), in_a_step, run.facts.planned_imbalance, run.balance(),
        std::ceil(10 * in_a_step) / 10);
}

double collapsed(const RouterCase& run, size_t layer) {
    const double missing = kCollapsed * run.max_entropy(layer) - run.window.entropy[layer];
    return run.facts.top_k > 1 && missing > 0 ? missing : 0;
}

std::string collapsed_text(const RouterCase& run, size_t layer) {
    return fmt::format(
        "the router's entropy is {:.3f} nats in {}, below {:.3f}: one of the {} experts of a token has "
        "almost all of the "
        "weight, and the others learn nothing from it: raise moe.z_loss ({:g} now), or lower optimizer.lr",
        run.window.entropy[layer], run.steps(), kCollapsed * run.max_entropy(layer), run.facts.top_k,
        run.facts.z_loss);
}

/// Worse is flatter, and at least as flat as in the window before.
double flat(const RouterCase& run, size_t layer) {
    if (!run.before) return 0;
    const double now = run.window.entropy[layer];
    const bool grows = now >= run.before->entropy[layer];
    return grows && now > kFlat * run.max_entropy(layer) ? now : 0;
}

std::string flat_text(const RouterCase& run, size_t layer) {
    const ExpertFacts& facts = run.facts;
    const bool has_loss = facts.sequence_loss > 0 || facts.step_loss > 0 || facts.z_loss > 0;
    return fmt::format(
        "the router's entropy is {:.3f} of at most {:.3f} nats in {} and does not fall: its scores hardly "
        "differ, so that it "
        "does not learn: {}",
        run.window.entropy[layer], run.max_entropy(layer), run.steps(),
        has_loss
            ? fmt::format("lower moe.sequence_loss ({:g} now), moe.step_loss ({:g}) and moe.z_loss ({:g})",
                          facts.sequence_loss, facts.step_loss, facts.z_loss)
            : "give routers a larger learning rate (an entry of optimizer.groups)");
}

double far_biases(const RouterCase& run, size_t layer) {
    const double range = run.window.bias_range.empty() ? 0 : run.window.bias_range[layer];
    return range > kLargestScore ? range : 0;
}

std::string far_biases_text(const RouterCase& run, size_t layer) {
    return fmt::format(
        "the biases of experts are {:.2f} apart after step {}, but scores are at most 1, so that no token "
        "can prefer the expert "
        "with the smallest bias to that with the largest: lower moe.bias_update_rate ({:g} now), and raise "
        "moe.sequence_loss ({:g} now)",
        run.window.bias_range[layer], run.window.last_step, run.facts.bias_update_rate,
        run.facts.sequence_loss);
}

struct RouterRule {
    const char* name;
    double (*badness)(const RouterCase& run, size_t layer);
    std::string (*text)(const RouterCase& run, size_t layer);
};

constexpr RouterRule kRouterRules[] = {{"unused", unused, unused_text},
                                       {"uneven", uneven, uneven_text},
                                       {"collapsed", collapsed, collapsed_text},
                                       {"flat", flat, flat_text},
                                       {"biases", far_biases, far_biases_text}};

}  // namespace

void ExpertWindow::add(int64_t step, const model::ExpertFigures& figures, int num_parts) {
    if (layers.empty()) {
        first_step = step;
        layers = figures.layers;
        counts.resize(layers.size(), std::vector<int64_t>(figures.counts.at(0).size()));
        part_load.resize(layers.size());
        entropy.resize(layers.size());
    }
    last_step = step;
    for (size_t i = 0; i < layers.size(); ++i) {
        for (size_t expert = 0; expert < counts[i].size(); ++expert)
            counts[i][expert] += figures.counts[i][expert];
        part_load[i] = std::max(part_load[i], largest_part(figures.counts[i], num_parts));
        entropy[i] += (figures.entropy[i] - entropy[i]) / static_cast<double>(num_steps());
    }
    bias_range.clear();
    for (size_t i = 0; i < figures.bias_min.size(); ++i)
        bias_range.push_back(figures.bias_max[i] - figures.bias_min[i]);
}

std::vector<ExpertFault> diagnose(const ExpertWindow& window, const std::optional<ExpertWindow>& before,
                                  const ExpertFacts& facts) {
    const RouterCase run{window, before, facts};
    std::vector<ExpertFault> found;
    for (const RouterRule& rule : kRouterRules) {
        std::vector<double> badness;
        for (size_t layer = 0; layer < window.layers.size(); ++layer)
            badness.push_back(rule.badness(run, layer));
        const auto worst = static_cast<size_t>(std::ranges::max_element(badness) - badness.begin());
        if (!(badness[worst] > 0)) continue;
        const auto count = std::ranges::count_if(badness, [](double each) { return each > 0; });
        const std::string more = count == 1 ? "" : fmt::format(", the worst of {} such layers", count);
        found.push_back(
            {rule.name, fmt::format("layer {}{}: {}", window.layers[worst], more, rule.text(run, worst))});
    }
    return found;
}

void ExpertDiagnosis::add(int64_t step, const model::ExpertFigures& figures) {
    if (step <= kFirstSteps || figures.forced_balance) return;
    window_.add(step, figures, facts_.num_parts);
    if (window_.num_steps() < kWindowSteps) return;
    faults_ = diagnose(window_, newest_, facts_);
    newest_ = std::exchange(window_, {});
    for (const auto& [rule, text] : faults_) {
        const auto [seen, is_first] = last_seen_.try_emplace(rule, step);
        if (is_first || step - seen->second > kQuietSteps) spdlog::warn("experts ({}): {}", rule, text);
        seen->second = step;
    }
}

void ExpertDiagnosis::end() const {
    for (const auto& [rule, text] : faults_) spdlog::info("experts ({}): {}", rule, text);
}

}  // namespace argosy::observe
