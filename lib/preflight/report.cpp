// The reports of the pre-flight: as text for people, and as JSON and in Prometheus's format for programs
// (FORMAT.md).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/median.h"
#include "base/program.h"
#include "base/strict_json.h"
#include "bench/collective.h"
#include "comm/communicator.h"
#include "preflight/preflight.h"

namespace argosy::preflight {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr double kGiga = 1e9, kTera = 1e12;

/// The range of the values in multiples of `unit`: "2.9", or "2.1 to 2.9 (median 2.8)".
std::string range(std::vector<double> values, double unit) {
    if (values.empty()) return "unknown";
    for (double& value : values) value /= unit;
    const auto [min, max] = std::ranges::minmax(values);
    const std::string from = fmt::format("{:.3g}", min), to = fmt::format("{:.3g}", max);
    return from == to ? from : fmt::format("{} to {} (median {:.3g})", from, to, median(values));
}

std::string line_of(const OperationSpeed& speed) {
    const bench::Case& kind = speed.operation.kind;
    const size_t num_groups = speed.operation.groups.size();
    std::string text =
        fmt::format("  {:<16} {:<18} {} {} of {} ranks, {:.3g} MB", kind.collective->name,
                    "over " + speed.operation.axes, num_groups, num_groups == 1 ? "group" : "groups",
                    speed.operation.groups.front().size(), static_cast<double>(kind.bytes) / 1e6);
    if (speed.operation.launch_bytes > kind.bytes + kind.bytes / 10) {
        text += fmt::format(" ({:.3g} MB per launch in a step)",
                            static_cast<double>(speed.operation.launch_bytes) / 1e6);
    }
    return text + fmt::format(": busbw {} GB/s\n", range(speed.bus_bandwidths, kGiga));
}

/// The rates of the ranks under stress that were measured.
std::string lines_of_stress(const Cluster& cluster) {
    const auto rates_of = [&](double StressResult::*rate) {
        std::vector<double> rates;
        for (const RankFacts& rank : cluster.ranks) {
            if (rank.stress && (*rank.stress).*rate > 0) rates.push_back((*rank.stress).*rate);
        }
        return rates;
    };
    const auto sustained = rates_of(&StressResult::flops_per_second);
    const auto to_device = rates_of(&StressResult::bytes_to_device);
    const auto to_host = rates_of(&StressResult::bytes_to_host);
    std::string text;
    if (!sustained.empty())
        text += fmt::format("    sustained      {} TFLOP/s a rank\n", range(sustained, kTera));
    if (!to_device.empty()) {
        text += fmt::format("  host and device  {} GB/s to the device, {} GB/s to the host\n",
                            range(to_device, kGiga), range(to_host, kGiga));
    }
    return text;
}

std::string lines_of_speeds(const Report& report) {
    std::string text =
        fmt::format("  matrix products  {}: {} TFLOP/s a rank\n",
                    bench::name(comm::element_type(report.type)), range(report.speeds.products, kTera));
    text += lines_of_stress(report.cluster);
    for (const OperationSpeed& speed : report.speeds.operations) text += line_of(speed);
    if (!report.speeds.nodes.empty()) {
        text += fmt::format("  pairs of nodes   {} GB/s out of a node\n", range(report.speeds.nodes, kGiga));
    }
    if (report.why_not_compared) {
        text +=
            fmt::format("  These speeds are not compared with each other: {}.\n", *report.why_not_compared);
    }
    return text;
}

Json operation_json(const OperationSpeed& speed) {
    Json groups = Json::array();
    for (size_t i = 0; i < speed.bus_bandwidths.size(); ++i) {
        groups.push_back({{"ranks", speed.operation.groups[i]}, {"bus_bw", speed.bus_bandwidths[i] / kGiga}});
    }
    return {{"collective", speed.operation.kind.collective->name},
            {"axes", speed.operation.axes},
            {"type", bench::name(speed.operation.kind.type)},
            {"bytes", speed.operation.kind.bytes},
            {"step_bytes", speed.operation.launch_bytes},
            {"nwrong", std::accumulate(speed.num_wrong.begin(), speed.num_wrong.end(), int64_t{0})},
            {"groups", groups}};
}

Json finding_json(const Finding& finding) {
    return {{"verdict", name(finding.severity)},
            {"check", finding.check},
            {"where", finding.where},
            {"what", finding.what},
            {"remedy", finding.remedy},
            {"at_fault", finding.bad_nodes}};
}

Json speeds_json(const Report& report) {
    Json products = Json::array(), collectives = Json::array(), nodes = Json::array(), pairs = Json::array();
    for (const double rate : report.speeds.products) products.push_back(rate / kTera);
    for (const OperationSpeed& speed : report.speeds.operations) {
        collectives.push_back(operation_json(speed));
    }
    for (size_t i = 0; i < report.speeds.nodes.size(); ++i) {
        Json rails = Json::array();
        for (const double rate : report.speeds.rails[i]) rails.push_back(rate / kGiga);
        nodes.push_back({{"node", report.nodes[i].name},
                         {"bandwidth", report.speeds.nodes[i] / kGiga},
                         {"rails", rails}});
    }
    for (size_t i = 0; i < report.speeds.pairs.size(); ++i) {
        const PairSpeed& pair = report.speeds.pairs[i];
        pairs.push_back({{"nodes", {report.nodes[pair.first].name, report.nodes[pair.second].name}},
                         {"bandwidth", pair.rate() / kGiga},
                         {"nwrong", pair.num_wrong},
                         {"hunt", i >= report.speeds.num_pairs_before_hunt}});
    }
    return {{"judged", !report.why_not_compared},
            {"products", {{"type", bench::name(comm::element_type(report.type))}, {"tera_flops", products}}},
            {"collectives", collectives},
            {"pairs_of_nodes", nodes},
            {"pairs", pairs},
            {"not_done", report.speeds.not_done}};
}

template <class Facts>
Json facts_json(const std::vector<Facts>& facts) {
    Json list = Json::array();
    for (const Facts& one : facts) list.push_back(parse_json(pack(one), "the facts of a rank"));
    return list;
}

/// `"node n3"`, as Prometheus writes the value of a label.
std::string quoted(const std::string& value) {
    std::string text = "\"";
    for (const char one : value) {
        if (one == '\\' || one == '"') text += '\\';
        text += one == '\n' ? "\\n" : std::string(1, one);
    }
    return text + "\"";
}

using Labels = std::vector<std::pair<const char*, std::string>>;

/// A gauge, and its values in order. Writes nothing if it has no value.
class Gauge {
  public:
    Gauge(const char* name, const char* help) : name_(name), help_(help) {}
    void add(const Labels& labels, double value) {
        std::vector<std::string> pairs;
        for (const auto& [label, text] : labels) pairs.push_back(fmt::format("{}={}", label, quoted(text)));
        lines_ += fmt::format("argosy_preflight_{}{} {}\n", name_,
                              pairs.empty() ? "" : fmt::format("{{{}}}", fmt::join(pairs, ",")), value);
    }
    std::string text() const {
        if (lines_.empty()) return "";
        return fmt::format("# HELP argosy_preflight_{0} {1}\n# TYPE argosy_preflight_{0} gauge\n{2}", name_,
                           help_, lines_);
    }

  private:
    const char *name_, *help_;
    std::string lines_;
};

std::string prometheus_findings(const Report& report) {
    Gauge bad("bad_node", "1 if the next start should leave the node out, else 0."),
        findings("findings", "Number of findings by check and severity.");
    const std::vector<std::string> bad_nodes = report.bad_nodes();
    for (const Node& node : report.nodes)
        bad.add({{"node", node.name}}, std::ranges::count(bad_nodes, node.name) > 0 ? 1 : 0);
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const Finding& one : report.findings) ++counts[{one.check, name(one.severity)}];
    for (const auto& [key, count] : counts)
        findings.add({{"check", key.first}, {"severity", key.second}}, count);
    return bad.text() + findings.text();
}

std::string prometheus_speeds(const Report& report) {
    Gauge products("product_flops_per_second", "Speed of matrix products by rank."),
        sustained("sustained_flops_per_second", "Speed of the sustained matrix products by rank."),
        to_device("copy_to_device_bytes_per_second", "Speed of copies from the host to a rank's GPU."),
        to_host("copy_to_host_bytes_per_second", "Speed of copies from a rank's GPU to the host."),
        nodes("node_send_bytes_per_second", "Bytes that a node sends to another node, the best of several."),
        rails("rail_send_bytes_per_second", "The same by rank."),
        groups("bus_bytes_per_second", "Bus bandwidth of a collective of a step by group (its first rank).");
    const Speeds& speeds = report.speeds;
    for (size_t node = 0; node < report.nodes.size(); ++node) {
        const auto& [name, ranks] = report.nodes[node];
        if (!speeds.nodes.empty()) nodes.add({{"node", name}}, speeds.nodes[node]);
        for (size_t i = 0; i < ranks.size(); ++i) {
            const Labels labels = {{"node", name}, {"rank", fmt::to_string(ranks[i])}};
            if (!speeds.products.empty()) products.add(labels, speeds.products[ranks[i]]);
            if (!speeds.rails.empty()) rails.add(labels, speeds.rails[node][i]);
            if (const auto& stress = report.cluster.ranks[ranks[i]].stress) {
                if (stress->flops_per_second > 0) sustained.add(labels, stress->flops_per_second);
                if (stress->bytes_to_device > 0) to_device.add(labels, stress->bytes_to_device);
                if (stress->bytes_to_host > 0) to_host.add(labels, stress->bytes_to_host);
            }
        }
    }
    for (const OperationSpeed& speed : speeds.operations) {
        for (size_t i = 0; i < speed.bus_bandwidths.size(); ++i) {
            groups.add({{"collective", speed.operation.kind.collective->name},
                        {"axes", speed.operation.axes},
                        {"ranks", fmt::to_string(speed.operation.groups[i].size())},
                        {"first_rank", fmt::to_string(speed.operation.groups[i].front())}},
                       speed.bus_bandwidths[i]);
        }
    }
    return products.text() + sustained.text() + to_device.text() + to_host.text() + nodes.text() +
           rails.text() + groups.text();
}

}  // namespace

std::vector<std::string> Report::bad_nodes() const {
    std::vector<std::string> names;
    for (const Finding& finding : findings) {
        for (const std::string& name : finding.bad_nodes) {
            if (std::ranges::find(names, name) == names.end()) names.push_back(name);
        }
    }
    return names;
}

std::string text_report(const Report& report) {
    std::string text =
        fmt::format("pre-flight of {} on {}{}\n", report.title, listed(names_of(report.nodes)),
                    report.speeds.library.empty() ? "" : fmt::format(" ({})", report.speeds.library));
    text += report.why_not_measured ? fmt::format("  not measured, because {}: {}\n",
                                                  *report.why_not_measured, listed(report.speeds.not_done))
                                    : lines_of_speeds(report);
    for (const Finding& finding : report.findings) {
        text += fmt::format("{}  {}: {}: {}\n      {}\n", name(finding.severity), finding.check,
                            finding.where, finding.what, finding.remedy);
    }
    for (const std::string& line : not_checked(report.cluster, report.type))
        text += fmt::format("not checked: {}\n", line);
    const auto bad = report.bad_nodes();
    text += fmt::format("{} in {:.1f} s{}{}\n", name(report.severity()), report.seconds,
                        bad.empty() ? "" : "; leave out ", fmt::join(bad, ", "));
    return text;
}

std::string json_report(const Report& report) {
    Json findings = Json::array();
    for (const Finding& finding : report.findings) findings.push_back(finding_json(finding));
    const Json whole = {{"format", kReportMark},
                        {"version", kVersion},
                        {"program_version", version()},
                        {"job", report.title},
                        {"library", report.speeds.library},
                        {"seconds", report.seconds},
                        {"verdict", name(report.severity())},
                        {"bad_nodes", report.bad_nodes()},
                        {"findings", findings},
                        {"not_checked", not_checked(report.cluster, report.type)},
                        {"speeds", speeds_json(report)},
                        {"ranks", facts_json(report.cluster.ranks)},
                        {"nodes", facts_json(report.cluster.nodes)}};
    return json_text(whole, 2) + "\n";
}

std::string prometheus_report(const Report& report) {
    Gauge severity("severity", "Worst finding: 0 PASS, 1 WARN, 2 FAIL."),
        seconds("duration_seconds", "Duration of the pre-flight."),
        time("end_timestamp_seconds", "End of the pre-flight, in seconds since 1970.");
    severity.add({}, static_cast<int>(report.severity()));
    seconds.add({}, report.seconds);
    time.add({}, report.time);
    return severity.text() + seconds.text() + time.text() + prometheus_findings(report) +
           prometheus_speeds(report);
}

}  // namespace argosy::preflight
