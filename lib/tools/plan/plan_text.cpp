#include "plan/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/strict_json.h"
#include "base/units.h"
#include "observe/shortage.h"
#include "plan/overlap.h"

namespace argosy::plan {
namespace {

using nlohmann::ordered_json;

std::string gib(int64_t bytes) { return observe::gibibytes_text(bytes); }

/// "27.1 GiB weights, 1.2 GiB gathered": the parts that are not 0.
std::string memory_parts(const PeakMemory& peak) {
    const std::pair<const char*, int64_t> parts[] = {
        {"weights", peak.held.weights},         {"their copies for computation", peak.held.copies},
        {"gradients", peak.held.gradients},     {"optimizer states", peak.held.states},
        {"gathered units", peak.held.gathered}, {"activations and the rest", peak.other_bytes()}};
    std::vector<std::string> texts;
    for (const auto& [name, bytes] : parts) {
        if (bytes > 0) texts.push_back(fmt::format("{} {}", name, gib(bytes)));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

/// "assumed beside tensors: 1.5 GiB for CUDA, 0.7 GiB for 3 NCCL communicators of 24 channels".
std::string beside_tensors(const Machine& machine, const RankTrace& trace) {
    std::string text =
        fmt::format("          assumed beside tensors: {} for CUDA", gib(machine.reserved_bytes));
    if (trace.connections.number() > 0) {
        text += fmt::format(", {} for {} NCCL communicators of {} channels", gib(trace.connection_bytes),
                            trace.connections.number(), machine.collective_channels);
        if (machine.message_channels != machine.collective_channels && trace.connections.messages_in > 0)
            text += fmt::format(", {} for messages", machine.message_channels);
    }
    if (trace.peer_bytes > 0) text += fmt::format(", {} that neighbours write to", gib(trace.peer_bytes));
    return text + "\n";
}

/// The parts of a step's time by name.
std::vector<std::pair<std::string, double>> parts_of(const RankTime& time) {
    std::vector<std::pair<std::string, double>> parts = {{"computation", time.compute},
                                                         {"the optimizer", time.optimizer},
                                                         {"launches by the host", time.launches},
                                                         {"waiting for other stages", time.bubble}};
    for (const auto& [group, seconds] : time.exposed) parts.emplace_back("exposed " + group, seconds);
    return parts;
}

/// "computation 71 %, exposed dp_shard 12 %": the largest part first.
std::string time_parts(const RankTime& time) {
    auto parts = parts_of(time);
    std::ranges::stable_sort(parts, std::greater<>(), [](const auto& part) { return part.second; });
    std::vector<std::string> texts;
    for (const auto& [name, seconds] : parts) {
        const double share = 100 * seconds / time.total;
        if (share >= 0.1) texts.push_back(fmt::format("{} {:.1f} %", name, share));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

ordered_json memory_json(const PeakMemory& peak) {
    return {{"peak_bytes", peak.bytes},         {"operation", peak.operation},
            {"weights", peak.held.weights},     {"copies", peak.held.copies},
            {"gradients", peak.held.gradients}, {"moments", peak.held.states},
            {"gathered", peak.held.gathered},   {"other", peak.other_bytes()}};
}

ordered_json collectives_json(const RankPlan& rank) {
    ordered_json rows = ordered_json::array();
    for (const TensorCollective& row : rank.tensor_collectives) {
        rows.push_back({{"group", row.group},
                        {"pass", row.pass},
                        {"for", row.work},
                        {"collective", comm::kind_name(row.kind)},
                        {"in_parts", row.in_parts},
                        {"number", row.number},
                        {"sent", row.moved.sent},
                        {"received", row.moved.received},
                        {"seconds", row.seconds},
                        {"exposed_seconds", row.exposed_seconds},
                        {"product_seconds", row.product_seconds},
                        {"why_not", row.why_not}});
    }
    return rows;
}

ordered_json rank_json(const RankPlan& rank) {
    const auto compute = [&seconds = rank.trace.compute_seconds](ops::WorkKind kind) {
        return seconds.contains(kind) ? seconds.at(kind) : 0.0;
    };
    ordered_json moved = ordered_json::object();
    for (const auto& [group, bytes] : rank.trace.moved)
        moved[group] = {{"sent", bytes.sent}, {"received", bytes.received}};
    const RankTime& time = rank.time;
    return {{"rank", rank.trace.rank},
            {"memory", memory_json(rank.trace.peak)},
            {"shared_bytes", rank.trace.shared_bytes},
            {"mapped_shared_bytes", rank.trace.mapped_shared_bytes},
            {"communicators", rank.trace.connections.number()},
            {"communicator_bytes", rank.trace.connection_bytes},
            {"peer_bytes", rank.trace.peer_bytes},
            {"moved_bytes", std::move(moved)},
            {"tensor_collectives", collectives_json(rank)},
            {"flops", rank.trace.flops},
            {"seconds",
             {{"total", time.total},
              {"compute", time.compute},
              {"optimizer", time.optimizer},
              {"launches", time.launches},
              {"bubble", time.bubble},
              {"exposed", time.exposed.empty() ? ordered_json::object() : ordered_json(time.exposed)},
              {"exposed_all_to_all", rank.all_to_all.exposed},
              {"all_to_all_without_overlap", rank.all_to_all.without_overlap},
              {"products", compute(ops::WorkKind::Product)},
              {"attention", compute(ops::WorkKind::Attention) + compute(ops::WorkKind::AttentionBackward)},
              {"passes", compute(ops::WorkKind::Pass)}}}};
}

/// The links with the operations that they are for, each once.
std::vector<std::pair<std::string, const Link*>> by_kind(const Links& links) {
    std::vector<std::pair<std::string, const Link*>> list;
    for (const auto& [kind, link] : links.measured) {
        if (kind != comm::OpKind::Receive) list.emplace_back(comm::kind_name(kind), &link);
    }
    list.emplace_back("", &links.usual);
    return list;
}

ordered_json links_json(const Links& links) {
    ordered_json list = ordered_json::array();
    for (const auto& [name, link] : by_kind(links)) {
        list.push_back({{"collective", name.empty() ? ordered_json() : ordered_json(name)},
                        {"bytes_per_second", link->bytes_per_second},
                        {"latency_seconds", link->latency_seconds},
                        {"source", link->source}});
    }
    return list;
}

/// "links     in a node 360 GB/s, 2 us a hop (80 % of the datasheet)", and a line for each measured link.
std::string links_text(const Plan& plan) {
    const Machine& machine = plan.machine;
    std::string text;
    const auto add = [&](const char* place, const Links& links) {
        for (const auto& [name, link] : by_kind(links)) {
            if (name.empty() && !links.measured.empty()) continue;
            text += fmt::format("{:<10}{}{}{} {:.3g} GB/s, {:.2g} us a hop ({})\n",
                                text.empty() ? "links" : "", name, name.empty() ? "" : " ", place,
                                link->bytes_per_second / 1e9, link->latency_seconds * 1e6, link->source);
        }
    };
    const int num_ranks = plan.mesh.num_ranks();
    if (num_ranks > 1 && machine.ranks_per_node > 1) add("in a node", machine.in_node);
    if (num_ranks > machine.ranks_per_node) add("between nodes", machine.between_nodes);
    return text;
}

double peak_gibibytes(const Plan& plan) { return gibibytes(plan.peak_bytes()); }

std::string row(const Candidate& candidate, const std::string& number) {
    const Plan& plan = candidate.plan;
    std::vector<std::string> others;
    for (const auto& [key, value] : candidate.changes) {
        if (!key.ends_with("_degree") && !key.ends_with("global_batch_size"))
            others.push_back(fmt::format("{} {}", key.substr(key.rfind('.') + 1), value));
    }
    if (!others.empty()) others[0] = "; " + others[0];
    return fmt::format("{:>5}  {:>9.4g}  {:>12.0f}  {:>5.1f} %  {:>7.1f}  {}{}\n", number, plan.seconds,
                       plan.tokens_per_second() / plan.mesh.num_ranks(), 100 * plan.utilisation(),
                       peak_gibibytes(plan), plan.mesh.name(), fmt::join(others, ", "));
}

/// The keys as TOML, by section.
std::string toml_of(const std::vector<std::pair<std::string, std::string>>& changes) {
    std::string text, section;
    for (const auto& [key, value] : changes) {
        const size_t dot = key.rfind('.');
        if (key.substr(0, dot) != section) {
            section = key.substr(0, dot);
            text += fmt::format("[{}]\n", section);
        }
        text += fmt::format("{} = {}\n", key.substr(dot + 1), value);
    }
    return text;
}

}  // namespace

std::string largest_growth(const Plan& from, const Plan& to) {
    const auto before = parts_of(from.slowest().time);
    std::pair<std::string, double> largest = {"", 0};
    for (const auto& [name, seconds] : parts_of(to.slowest().time)) {
        const auto same = std::ranges::find(before, name, [](const auto& part) { return part.first; });
        const double growth = seconds - (same == before.end() ? 0 : same->second);
        if (growth > largest.second) largest = {name, growth};
    }
    return largest.first.empty() ? "" : fmt::format(": {:.3g} s more for {}", largest.second, largest.first);
}

std::string plan_text(const Plan& plan) {
    const RankPlan& fullest = plan.fullest();
    const PeakMemory& peak = fullest.trace.peak;
    const RankPlan& slowest =
        *std::ranges::max_element(plan.ranks, {}, [](const RankPlan& rank) { return rank.time.total; });
    std::string text = fmt::format("{} on {} x {} ({}), {} on a node\n", plan.title, plan.mesh.num_ranks(),
                                   plan.machine.name, plan.mesh.name(), plan.machine.ranks_per_node);
    text += fmt::format("memory    {} at most, rank {}, in {}: {}\n", gib(peak.bytes), fullest.trace.rank,
                        peak.operation, memory_parts(peak));
    if (fullest.trace.score_bytes > 0) {
        text += fmt::format(
            "          attention holds all its scores at once, several times {} (README, Limits)\n",
            gib(static_cast<int64_t>(fullest.trace.score_bytes)));
    }
    if (plan.machine.memory_bytes > 0) {
        text += fmt::format("          {}: a device has {}, of which {} are left for tensors\n",
                            plan.fits() ? "fits" : "DOES NOT FIT", gib(plan.machine.memory_bytes),
                            gib(plan.room_bytes()));
    }
    if (plan.machine.is_gpu) text += beside_tensors(plan.machine, fullest.trace);
    text += fmt::format("step      {:.3g} s (estimate): {}\n", slowest.time.total, time_parts(slowest.time));
    if (plan.planned_imbalance > 1) {
        text += fmt::format(
            "          the planned rank's experts get {:.3g} times an equal share: moe.planned_imbalance\n",
            plan.planned_imbalance);
    }
    text += text_of(slowest.all_to_all, slowest.trace.rank);
    text +=
        fmt::format("speed     {:.0f} tokens/s, {:.0f} a device, {:.1f} % of the peak of {:.4g} TFLOP/s\n",
                    plan.tokens_per_second(), plan.tokens_per_second() / plan.mesh.num_ranks(),
                    100 * plan.utilisation(), plan.peak_flops / 1e12);
    if (plan.machine.is_gpu) {
        text += fmt::format("          products reach {:.3g} of the peak: {}\n", plan.machine.product_share,
                            plan.machine.calibration);
        if (!plan.machine.compared.empty())
            text += fmt::format("          with the shares of other programs, {}\n", plan.machine.compared);
        text += "          not planned: congestion, failures, slow storage\n";
    }
    if (plan.machine.is_gpu && plan.peak_ratio != 1) {
        text += fmt::format(
            "          computes in {}, whose peak is {:.3g} times lower: training.mixed_precision_param\n",
            plan.compute_type, plan.peak_ratio);
    }
    constexpr int64_t kMinShown = kMebi;
    if (fullest.trace.shared_bytes >= kMinShown) {
        text += fmt::format("shared    {} more at least for exchanges between the ranks of a node\n",
                            gib(fullest.trace.shared_bytes));
    }
    for (const auto& [group, bytes] : slowest.trace.moved) {
        if (std::max(bytes.sent, bytes.received) < kMinShown) continue;
        text += fmt::format("traffic   {}: a rank sends {} and receives {} a step\n", group, gib(bytes.sent),
                            gib(bytes.received));
    }
    return text + links_text(plan) + tensor_text(plan);
}

namespace {

ordered_json value_of(const Plan& plan) {
    ordered_json ranks = ordered_json::array();
    for (const RankPlan& rank : plan.ranks) ranks.push_back(rank_json(rank));
    return {{"model", plan.title},
            {"mesh", plan.mesh.name()},
            {"machine", plan.machine.name},
            {"num_ranks", plan.mesh.num_ranks()},
            {"ranks_per_node", plan.machine.ranks_per_node},
            {"links",
             {{"in_node", links_json(plan.machine.in_node)},
              {"between_nodes", links_json(plan.machine.between_nodes)}}},
            {"fits", plan.fits()},
            {"memory_room_bytes", plan.room_bytes()},
            {"step_seconds", plan.seconds},
            {"tokens", plan.tokens},
            {"tokens_per_second", plan.tokens_per_second()},
            {"tokens_per_second_per_device", plan.tokens_per_second() / plan.mesh.num_ranks()},
            {"mfu_causal", plan.utilisation()},
            {"planned_imbalance", plan.planned_imbalance},
            {"ranks", std::move(ranks)}};
}

}  // namespace

std::string plan_json(const Plan& plan) { return json_text(value_of(plan), 2) + "\n"; }

namespace {

constexpr const char* kTitles = "        step (s)  tokens/s/GPU      MFU  mem GiB  configuration\n";

/// "4.1 % less time than 1": against the fastest with the given types, if one fits.
std::string gain(const Plan& plan, const Search& found) {
    if (!plan.fits())
        return fmt::format("DOES NOT FIT, {:.1f} GiB are left for tensors", gibibytes(plan.room_bytes()));
    if (found.best.empty()) return "fits";
    const double share = 100 * (plan.seconds / found.best.front().plan.seconds - 1);
    return fmt::format("{:.1f} % {} time than 1", std::abs(share), share < 0 ? "less" : "more");
}

/// The row whose keys are printed: the fastest that fits, or the widest if no row of the given types fits.
const Narrower* shown_in_full(const Search& found) {
    const Narrower* shown = nullptr;
    for (const Narrower& one : found.narrower) {
        const Plan& plan = one.candidate.plan;
        if (!plan.fits() || (shown && (found.best.empty() || plan.seconds >= shown->candidate.plan.seconds)))
            continue;
        shown = &one;
    }
    return shown;
}

/// Rows A, B, ... and what they mean.
std::string narrower_text(const Search& found) {
    if (found.narrower.empty()) return "";
    std::string rows, meanings, keys;
    char letter = 'A';
    const Narrower* const shown = shown_in_full(found);
    const Plan* before = nullptr;
    for (const auto& [meaning, candidate] : found.narrower) {
        rows += row(candidate, std::string(1, letter));
        meanings += fmt::format("{}: {}: {}", letter, meaning, gain(candidate.plan, found));
        if (before != nullptr && candidate.plan.fits() && candidate.plan.seconds > before->seconds) {
            meanings +=
                fmt::format(", {:.1f} % more than {}{}", 100 * (candidate.plan.seconds / before->seconds - 1),
                            char(letter - 1), largest_growth(*before, candidate.plan));
        }
        meanings += "\n";
        before = &candidate.plan;
        if (shown != nullptr && &shown->candidate == &candidate)
            keys = fmt::format("\n# {} is the given configuration with these keys:\n{}", letter,
                               toml_of(candidate.changes));
        ++letter;
    }
    return "\nNarrower number types, which CHANGE THE NUMBERS that training computes:\n" +
           (kTitles + rows + meanings + keys);
}

}  // namespace

std::string search_text(const Search& found) {
    std::string text = fmt::format("{} configurations planned, {} of them too large\n", found.num_planned,
                                   found.num_too_large);
    if (found.best.empty()) {
        const Candidate& nearest = found.nearest.front();
        return text +
               fmt::format(
                   "NONE FITS: the smallest needs {:.1f} GiB, and {:.1f} GiB are left for tensors\n\n{}",
                   peak_gibibytes(nearest.plan), gibibytes(nearest.plan.room_bytes()),
                   toml_of(nearest.changes)) +
               narrower_text(found);
    }
    text += kTitles;
    for (size_t i = 0; i < found.best.size(); ++i) text += row(found.best[i], std::to_string(i + 1));
    if (found.given) text += row(*found.given, "given");
    for (size_t i = 1; i < found.best.size(); ++i) {
        const Plan &before = found.best[i - 1].plan, &plan = found.best[i].plan;
        text += fmt::format("{} needs {:.1f} GiB less than {}, but {:.1f} % more time{}\n", i + 1,
                            peak_gibibytes(before) - peak_gibibytes(plan), i,
                            100 * (plan.seconds / before.seconds - 1), largest_growth(before, plan));
    }
    text += found.reason + links_text(found.best.front().plan) + narrower_text(found);
    const auto& changes = found.best.front().changes;
    if (changes.empty()) return text + "\nThe given configuration is number 1.\n";
    return text + "\n# Number 1 is the given configuration with these keys:\n" + toml_of(changes);
}

std::string search_json(const Search& found) {
    const auto listed = [](const std::vector<Candidate>& candidates) {
        ordered_json list = ordered_json::array();
        for (const Candidate& candidate : candidates) {
            ordered_json changes = ordered_json::object();
            for (const auto& [key, value] : candidate.changes) changes[key] = value;
            list.push_back({{"changes", std::move(changes)}, {"plan", value_of(candidate.plan)}});
        }
        return list;
    };
    ordered_json narrower = ordered_json::array();
    for (const auto& [meaning, candidate] : found.narrower) {
        ordered_json one = listed({candidate})[0];
        one["meaning"] = meaning;
        narrower.push_back(std::move(one));
    }
    const ordered_json json = {{"num_planned", found.num_planned},
                               {"num_too_large", found.num_too_large},
                               {"given", found.given ? value_of(found.given->plan) : ordered_json()},
                               {"best", listed(found.best)},
                               {"reason", found.reason},
                               {"nearest", listed(found.nearest)},
                               {"narrower", std::move(narrower)}};
    return json_text(json, 2) + "\n";
}

}  // namespace argosy::plan
