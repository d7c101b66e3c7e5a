#include "preflight/history.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"
#include "bench/collective.h"
#include "comm/communicator.h"
#include "observe/append_file.h"
#include "preflight/diagnose.h"

namespace argosy::preflight {
namespace {

constexpr const char* kHistoryFormat = "argosy node history";
constexpr int kHistoryVersion = 2;
constexpr size_t kMinRuns = 3, kMaxRuns = 50;
constexpr std::streamoff kMaxBytesRead = 64 << 10;  // of a file: about a hundred entries

/// A kind of rate: its name in the history (of groups, add_groups() makes it), and its name and meaning in
/// Prometheus.
struct RateKind {
    const char *name, *metric, *help;
};
constexpr RateKind kProducts = {"products", "product_flops_per_second", "Speed of matrix products by rank."};
constexpr RateKind kSustained = {"sustained products", "sustained_flops_per_second",
                                 "Speed of the sustained matrix products by rank."};
constexpr RateKind kPairs = {"pairs of nodes", "node_send_bytes_per_second",
                             "Bytes that a node sends to another node, the best of several."};
constexpr RateKind kRails = {"rails", "rail_send_bytes_per_second", "The same by rank."};
constexpr RateKind kGroups = {"", "bus_bytes_per_second",
                              "Bus bandwidth of a collective of a step by group (its first rank)."};
constexpr const RateKind* kKinds[] = {&kProducts, &kSustained, &kPairs, &kRails, &kGroups};

using Labels = std::vector<std::pair<const char*, std::string>>;

/// A rate of this run. The history of a node and Prometheus's figures are written from these.
struct Figure {
    const RateKind* kind;
    std::string name;            // in the history: two rates of one name were measured in the same way
    std::optional<size_t> node;  // none: a group across nodes, which the history does not keep
    Labels labels;               // in Prometheus
    double value;
};

bool is_in_flops(std::string_view rate) { return rate == "products" || rate.starts_with("sustained "); }
bool is_between_nodes(std::string_view rate) { return rate == "pairs of nodes" || rate == "rails"; }
/// Whether the rate has a value for each rank of the node.
bool is_by_rank(std::string_view rate) { return is_in_flops(rate) || rate == "rails"; }

/// "8 x NVIDIA H200, 8 ranks, bfloat16, device memory".
std::string kind_of(const Report& report, size_t node) {
    const NodeFacts& facts = report.cluster.nodes[node];
    const std::string devices = facts.gpus.empty()
                                    ? fmt::format("{} CPUs", facts.num_cpus)
                                    : fmt::format("{} x {}", facts.gpus.size(), facts.gpus.front().name);
    return fmt::format("{}, {} ranks, {}, {} memory", devices, report.nodes[node].ranks.size(),
                       bench::name(comm::element_type(report.type)),
                       report.speeds.between_devices() ? "device" : "host");
}

/// Adds the rate of a GPU's sustained products. The rate's name has their time, because a GPU gets hotter and
/// slower. A rate that was not measured is 0, which keeps the places of the other ranks. Leaves out
/// processors: their stress is so short that other programs disturb it.
void add_stress(const RankFacts& rank, size_t node, const Labels& labels, std::vector<Figure>& figures) {
    if (!rank.load || rank.load->bus_id.empty()) return;
    figures.push_back({&kSustained, fmt::format("{} of {:g} s", kSustained.name, rank.load->seconds), node,
                       labels, rank.load->flops_per_second});
}

/// Adds the groups of a collective. The name has everything that two runs must have in common.
void add_groups(const OperationSpeed& speed, const std::vector<size_t>& node_of_rank,
                std::vector<Figure>& figures) {
    for (size_t i = 0; i < speed.bus_bandwidths.size(); ++i) {
        const std::vector<int>& group = speed.operation.groups[i];
        const bench::Case& kind = speed.operation.kind;
        const size_t node = node_of_rank[group.front()];
        const bool within = std::ranges::all_of(group, [&](int rank) { return node_of_rank[rank] == node; });
        figures.push_back({&kGroups,
                           fmt::format("{} of {} bytes ({}) by {} ranks", kind.collective->name, kind.bytes,
                                       bench::name(kind.type), group.size()),
                           within ? std::optional(node) : std::nullopt,
                           {{"collective", kind.collective->name},
                            {"axes", speed.operation.axes},
                            {"ranks", fmt::to_string(group.size())},
                            {"first_rank", fmt::to_string(group.front())}},
                           speed.bus_bandwidths[i]});
    }
}

/// All figures of a run. Figures of ranks are in the order of the node's ranks.
std::vector<Figure> figures_of(const Report& report) {
    const Speeds& speeds = report.speeds;
    std::vector<size_t> node_of_rank(report.cluster.ranks.size());
    std::vector<Figure> figures;
    const auto add = [&](const RateKind& kind, size_t node, const Labels& labels, double value) {
        figures.push_back({&kind, kind.name, node, labels, value});
    };
    for (size_t node = 0; node < report.nodes.size(); ++node) {
        const auto& [name, ranks] = report.nodes[node];
        if (!speeds.nodes.empty()) add(kPairs, node, {{"node", name}}, speeds.nodes[node]);
        for (size_t i = 0; i < ranks.size(); ++i) {
            const Labels labels = {{"node", name}, {"rank", fmt::to_string(ranks[i])}};
            if (!speeds.products.empty()) add(kProducts, node, labels, speeds.products[ranks[i]]);
            if (!speeds.rails.empty()) add(kRails, node, labels, speeds.rails[node][i]);
            add_stress(report.cluster.ranks[ranks[i]], node, labels, figures);
            node_of_rank[ranks[i]] = node;
        }
    }
    for (const OperationSpeed& speed : speeds.operations) add_groups(speed, node_of_rank, figures);
    return figures;
}

/// The value of a label, as Prometheus writes it: "node n3" in quotes.
std::string quoted(const std::string& value) {
    std::string text = "\"";
    for (const char one : value) {
        if (one == '\\' || one == '"') text += '\\';
        text += one == '\n' ? "\\n" : std::string(1, one);
    }
    return text + "\"";
}

/// A gauge with its values in order; empty if there are none.
std::string gauge(const char* name, const char* help, const std::vector<std::pair<Labels, double>>& values) {
    if (values.empty()) return "";
    std::string text =
        fmt::format("# HELP argosy_preflight_{0} {1}\n# TYPE argosy_preflight_{0} gauge\n", name, help);
    for (const auto& [labels, value] : values) {
        std::vector<std::string> pairs;
        for (const auto& [label, of] : labels) pairs.push_back(fmt::format("{}={}", label, quoted(of)));
        text += fmt::format("argosy_preflight_{}{} {}\n", name,
                            pairs.empty() ? "" : fmt::format("{{{}}}", fmt::join(pairs, ",")), value);
    }
    return text;
}

std::string line_of(const HistoryEntry& entry) {
    const nlohmann::ordered_json line = {{"format", kHistoryFormat}, {"version", kHistoryVersion},
                                         {"time", entry.time},       {"kind", entry.kind},
                                         {"nodes", entry.num_nodes}, {"rates", entry.rates}};
    return json_text(line);
}

std::optional<HistoryEntry> entry_of(const std::string& line, const std::filesystem::path& file) {
    try {
        const nlohmann::ordered_json read = parse_json(line, file.string());
        if (read.at("format") != kHistoryFormat || read.at("version") != kHistoryVersion) return std::nullopt;
        HistoryEntry entry{
            .time = read.at("time"), .kind = read.at("kind"), .num_nodes = read.value("nodes", 0)};
        for (const auto& [name, rates] : read.at("rates").items())
            entry.rates[name] = rates.get<std::vector<double>>();
        return entry;
    } catch (const std::exception&) {
        return std::nullopt;  // an incomplete line, or another program's
    }
}

std::filesystem::path file_of(const Node& node, const std::filesystem::path& folder) {
    std::string name = node.name;
    std::ranges::replace(name, '/', '_');
    return folder / (name + ".jsonl");
}

/// The newest rates at one place of the entries that have it.
std::vector<double> past_rates(const std::string& name, size_t place, const HistoryEntry& now,
                               const std::vector<HistoryEntry>& past) {
    std::vector<double> rates;
    for (const HistoryEntry& entry : past | std::views::reverse) {
        const auto found = entry.rates.find(name);
        if (entry.kind != now.kind || found == entry.rates.end() || place >= found->second.size()) continue;
        if (is_between_nodes(name) && entry.num_nodes != now.num_nodes) continue;
        if (found->second[place] > 0 && rates.size() < kMaxRuns) rates.push_back(found->second[place]);
    }
    return rates;
}

/// The present rate as an outlier of the past, if it is one.
std::optional<Outlier> slower_than(std::vector<double> rates, double now) {
    if (rates.size() < kMinRuns || now <= 0) return std::nullopt;
    rates.push_back(now);
    for (const Outlier& one : slow_outliers(rates)) {
        if (one.index + 1 == rates.size()) return one;
    }
    return std::nullopt;
}

}  // namespace

std::vector<HistoryEntry> history_entries(const Report& report) {
    std::vector<HistoryEntry> entries;
    for (size_t node = 0; node < report.nodes.size(); ++node) {
        entries.push_back({.time = report.time,
                           .kind = kind_of(report, node),
                           .num_nodes = static_cast<int>(report.nodes.size())});
    }
    for (const Figure& one : figures_of(report)) {
        if (one.node) entries[*one.node].rates[one.name].push_back(one.value);
    }
    for (HistoryEntry& entry : entries)
        std::erase_if(entry.rates, [](const auto& rate) { return std::ranges::max(rate.second) <= 0; });
    return entries;
}

std::string prometheus_report(const Report& report) {
    std::string text =
        gauge("severity", "Worst finding: 0 PASS, 1 WARN, 2 FAIL.",
              {{{}, static_cast<double>(report.severity())}}) +
        gauge("duration_seconds", "Duration of the pre-flight.", {{{}, report.seconds}}) +
        gauge("end_timestamp_seconds", "End of the pre-flight, in seconds since 1970.", {{{}, report.time}});
    std::vector<std::pair<Labels, double>> bad, findings;
    const std::vector<std::string> bad_nodes = report.bad_nodes();
    for (const Node& node : report.nodes)
        bad.push_back({{{"node", node.name}}, std::ranges::count(bad_nodes, node.name) > 0 ? 1.0 : 0.0});
    std::map<std::pair<std::string, std::string>, double> counts;
    for (const Finding& one : report.findings) ++counts[{one.check, name(one.severity)}];
    for (const auto& [key, count] : counts)
        findings.push_back({{{"check", key.first}, {"severity", key.second}}, count});
    text += gauge("bad_node", "1 if the next start should leave the node out, else 0.", bad) +
            gauge("findings", "Number of findings by check and severity.", findings);
    std::map<const RateKind*, std::vector<std::pair<Labels, double>>> by_kind;
    for (Figure& one : figures_of(report)) {
        if (one.value > 0) by_kind[one.kind].emplace_back(std::move(one.labels), one.value);
    }
    for (const RateKind* kind : kKinds) text += gauge(kind->metric, kind->help, by_kind[kind]);
    return text;
}

std::vector<Finding> compare_with_past(int node, const HistoryEntry& now,
                                       const std::vector<HistoryEntry>& past, const Report& report) {
    std::vector<Finding> findings;
    for (const auto& [name, rates] : now.rates) {
        std::optional<Outlier> slowest;
        size_t num_runs = 0;
        std::vector<int> slow_ranks;
        for (size_t place = 0; place < rates.size(); ++place) {
            const std::vector<double> before = past_rates(name, place, now, past);
            const auto slow = slower_than(before, rates[place]);
            if (!slow) continue;
            if (is_by_rank(name)) slow_ranks.push_back(report.nodes[node].ranks[place]);
            if (slowest && slowest->share <= slow->share) continue;
            slowest = Outlier{place, slow->share, slow->zscore};
            num_runs = before.size();
        }
        if (!slowest) continue;
        findings.push_back(
            {Severity::Warn, std::string(kHistoryOf) + name,
             slow_ranks.empty() ? report.nodes[node].name : describe_ranks(slow_ranks, report.cluster),
             fmt::format("{:.3g} {}, {:.0f} % of the median of the {} last runs here (robust z-score {:.1f})",
                         rates[slowest->index] / (is_in_flops(name) ? 1e12 : 1e9),
                         is_in_flops(name) ? "TFLOP/s" : "GB/s", 100 * slowest->share, num_runs,
                         slowest->zscore),
             "look for what changed on the node (driver, firmware, cooling, power limit, cables), and have "
             "it "
             "repaired if its neighbours did not change"});
    }
    return findings;
}

std::vector<HistoryEntry> read_history(const std::filesystem::path& file) {
    std::vector<HistoryEntry> entries;
    errno = 0;
    std::ifstream lines(file, std::ios::binary | std::ios::ate);
    const int reason = errno;
    if (!lines && reason != ENOENT && reason != ENOTDIR)
        throw RunError("cannot read '{}': {}", file.string(), std::strerror(reason));
    const std::streamoff size = lines ? static_cast<std::streamoff>(lines.tellg()) : 0;
    lines.seekg(std::max<std::streamoff>(0, size - kMaxBytesRead));
    for (std::string line; std::getline(lines, line);) {
        if (auto entry = entry_of(line, file)) entries.push_back(std::move(*entry));
    }
    return entries;
}

std::vector<Finding> compare_with_history(const std::filesystem::path& folder, const Report& report,
                                          const std::function<void()>& file_done) {
    std::vector<Finding> findings;
    const std::vector<HistoryEntry> entries = history_entries(report);
    for (size_t node = 0; node < entries.size(); ++node) {
        try {
            const auto past = read_history(file_of(report.nodes[node], folder));
            append(compare_with_past(static_cast<int>(node), entries[node], past, report), findings);
        } catch (const RunError& error) {
            findings.push_back({Severity::Warn, kCheckNames.history, report.nodes[node].name, error.what(),
                                "make the file readable, or set --history to another folder"});
        }
        if (file_done) file_done();
    }
    return findings;
}

void append_history(const std::filesystem::path& folder, const Report& report,
                    const std::function<void()>& file_done) {
    const std::vector<HistoryEntry> entries = history_entries(report);
    size_t num_failed = 0;
    std::string first_failure;
    for (size_t node = 0; node < entries.size(); ++node) {
        try {
            observe::AppendFile(file_of(report.nodes[node], folder).string(), "--history")
                .append_line(line_of(entries[node]));
        } catch (const std::exception& error) {
            if (num_failed++ == 0) first_failure = error.what();
        }
        if (file_done) file_done();
    }
    if (num_failed > 0) {
        throw RunError("{} of {} files were not written; the first: {}", num_failed, entries.size(),
                       first_failure);
    }
}

}  // namespace argosy::preflight
