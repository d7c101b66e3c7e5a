// The reports of the pre-flight: as text for people, and as JSON for programs (FORMAT.md).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/median.h"
#include "base/program.h"
#include "base/strict_json.h"
#include "bench/collective.h"
#include "comm/communicator.h"
#include "preflight/preflight.h"

namespace argosy::preflight {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 3;
constexpr double kGiga = 1e9, kTera = 1e12;

/// The range of the values in multiples of `unit`: "2.9", or "2.1 to 2.9 (median 2.8)".
std::string range(std::vector<double> values, double unit) {
    if (values.empty()) return "unknown";
    for (double& value : values) value /= unit;
    const auto [min, max] = std::ranges::minmax(values);
    const std::string from = fmt::format("{:.3g}", min), to = fmt::format("{:.3g}", max);
    return from == to ? from : fmt::format("{} to {} (median {:.3g})", from, to, median(values));
}

/// The group that is furthest below the plan.
std::string beside_plan(const OperationSpeed& speed) {
    const size_t group = speed.furthest_below_plan();
    const double measured = speed.bus_bandwidths[group], planned = speed.planned[group];
    const double milli_bytes = 1e3 * speed.operation.bus_bytes();
    return fmt::format(", {:.3g} ms; a plan assumes {:.3g} GB/s, {:.3g} ms: {:.0f} % of it",
                       milli_bytes / measured, planned / kGiga, milli_bytes / planned,
                       100 * measured / planned);
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
    text += fmt::format(": busbw {} GB/s", range(speed.bus_bandwidths, kGiga));
    return text + (speed.planned.empty() ? "" : beside_plan(speed)) + "\n";
}

/// The rates of the sustained products that were measured.
std::string line_of_sustained(const Cluster& cluster) {
    std::vector<double> rates;
    for (const RankFacts& rank : cluster.ranks) {
        if (rank.load && rank.load->flops_per_second > 0) rates.push_back(rank.load->flops_per_second);
    }
    if (rates.empty()) return "";
    return fmt::format("    sustained      {} TFLOP/s a rank\n", range(rates, kTera));
}

std::string lines_of_speeds(const Report& report) {
    std::string text =
        fmt::format("  matrix products  {}: {} TFLOP/s a rank\n",
                    bench::name(comm::element_type(report.type)), range(report.speeds.products, kTera));
    text += line_of_sustained(report.cluster);
    for (const OperationSpeed& speed : report.speeds.operations) text += line_of(speed);
    if (!report.speeds.nodes.empty()) {
        text += fmt::format("  pairs of nodes   {} GB/s out of a node\n", range(report.speeds.nodes, kGiga));
    }
    if (!report.planned_gpu.empty())
        text += fmt::format("  The plan is that of {} (pretrain --plan --gpu {}).\n", report.planned_gpu,
                            report.planned_gpu);
    if (!report.why_no_plan.empty())
        text += fmt::format("  These speeds are not compared with a plan: {}.\n", report.why_no_plan);
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
        if (speed.planned.empty()) continue;
        groups.back()["planned_bus_bw"] = speed.planned[i] / kGiga;
        groups.back()["share_of_plan"] = speed.share_of_plan(i);
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
            {"planned_gpu", report.planned_gpu},
            {"why_no_plan", report.why_no_plan},
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
    std::vector<std::string> names;
    for (const Node& node : report.nodes) names.push_back(node.name);
    std::string text =
        fmt::format("pre-flight of {} on {}{}\n", report.title, listed(names),
                    report.speeds.library.empty() ? "" : fmt::format(" ({})", report.speeds.library));
    text += report.why_not_measured ? fmt::format("  not measured, because {}: {}\n",
                                                  *report.why_not_measured, listed(report.speeds.not_done))
                                    : lines_of_speeds(report);
    for (const Finding& finding : report.findings) {
        text += fmt::format("{}  {}: {}: {}\n      {}\n", name(finding.severity), finding.check,
                            finding.where, finding.what, finding.remedy);
    }
    for (const std::string& line : not_checked(report.cluster))
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
                        {"not_checked", not_checked(report.cluster)},
                        {"speeds", speeds_json(report)},
                        {"ranks", facts_json(report.cluster.ranks)},
                        {"nodes", facts_json(report.cluster.nodes)}};
    return json_text(whole, 2) + "\n";
}

}  // namespace argosy::preflight
