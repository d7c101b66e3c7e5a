#include "bench/benchmark.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/program.h"
#include "base/strict_json.h"

namespace argosy::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 3;
constexpr double kGiga = 1e9, kMicrosPerSecond = 1e6;

std::string utc(Clock::time_point time) {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(Clock::to_time_t(time)));
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json environment_json() {
    Json found = Json::object();
    for (const auto& [variable, value] : communication_variables()) found[variable] = value;
    return found;
}

/// One entry per rank.
Json devices_json(const std::vector<RankInfo>& ranks, const BackendChoice& choice) {
    Json list = Json::array();
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        Json device = nullptr;
        if (!choice.devices.empty()) {
            const cuda::Device& one = choice.devices[rank];
            device = {{"number", one.number},
                      {"name", one.name},
                      {"pci_bus_id", one.pci_bus_id},
                      {"memory_bytes", one.memory_bytes},
                      {"compute_capability", fmt::format("{}.{}", one.capability / 10, one.capability % 10)}};
        }
        list.push_back({{"rank", rank},
                        {"host", ranks[rank].host},
                        {"process", ranks[rank].process},
                        {"device", device}});
    }
    return list;
}

Json config_json(const Options& options) {
    Json config = {{"minimum_bytes", options.sweep.min_bytes}, {"maximum_bytes", options.sweep.max_bytes}};
    if (options.sweep.factor > 1) {
        config["step_factor"] = options.sweep.factor;
    } else {
        config["step_bytes"] = options.sweep.step_bytes;
    }
    config.update({{"warmup_iters", options.warmup},
                   {"iterations", options.iterations},
                   {"validation", options.checks},
                   {"timeout_seconds", options.timeout_seconds},
                   {"mesh", nullptr}});
    if (options.mesh) config["mesh"] = {options.mesh->across, options.mesh->within};
    return config;
}

Json timing_json(const Timing& timing) {
    const Distribution& slowest = timing.slowest;
    return {{"time_us", timing.seconds * kMicrosPerSecond},
            {"alg_bw", timing.algorithm_bandwidth / kGiga},
            {"bus_bw", timing.bus_bandwidth / kGiga},
            {"nwrong", or_null(timing.num_wrong)},
            {"slowest_rank_us",
             {{"min", slowest.min * kMicrosPerSecond},
              {"p50", slowest.p50 * kMicrosPerSecond},
              {"p99", slowest.p99 * kMicrosPerSecond},
              {"max", slowest.max * kMicrosPerSecond},
              {"mean", slowest.mean * kMicrosPerSecond},
              {"cv_percent", slowest.variation_percent()}}}};
}

Json beside_json(const Beside& beside) {
    return {{"time_us", beside.seconds * kMicrosPerSecond},
            {"product_alone_us", beside.product_alone * kMicrosPerSecond},
            {"product_us", beside.product * kMicrosPerSecond}};
}

Json row_json(const AxisResults& axis, const Row& row) {
    const bool rooted = row.kind.collective->rooted, reduces = row.kind.collective->reduces;
    return {{"axis", axis.name},
            {"size", row.kind.bytes},
            {"count", row.kind.chunk_elements},
            {"type", name(row.kind.type)},
            {"redop", reduces ? Json(name(row.kind.reduction)) : Json(nullptr)},
            {"root", rooted ? Json(row.kind.root) : Json(nullptr)},
            {"out_of_place", timing_json(row.out_of_place)},
            {"in_place", timing_json(row.in_place)},
            {"beside_products", row.beside ? beside_json(*row.beside) : Json(nullptr)},
            {"end_time", utc(row.ended)}};
}

Json axis_json(const AxisResults& axis, const Options& options) {
    const int64_t wrong = axis.num_wrong();
    const bool checked = options.checks > 0;
    return {{"axis", axis.name},
            {"num_groups", axis.num_groups},
            {"group_size", axis.group_size},
            {"transport", axis.transport},
            {"out_of_bounds",
             {{"count", checked ? Json(wrong) : Json(nullptr)},
              {"okay", checked ? Json(wrong == 0) : Json(nullptr)}}},
            {"average_bus_bandwidth",
             {{"bandwidth", axis.mean_bus_bandwidth()},
              {"minimum", or_null(options.min_bus_bandwidth)},
              {"okay", options.min_bus_bandwidth ? Json(!below_minimum(axis, options)) : Json(nullptr)}}}};
}

/// Prints a number in `width` characters: with two decimals, with one or none if fewer fit, or with an
/// exponent if the digits before the point do not fit.
std::string fitted(double value, int width) {
    int digits = 0;  // before the decimal point; 0 for numbers below 1
    for (double power = 1; value >= power; power *= 10) ++digits;
    if (digits < width - 2) return fmt::format("{:{}.2f}", value, width);
    if (digits < width - 1) return fmt::format("{:{}.1f}", value, width);
    if (digits <= width) return fmt::format("{:{}.0f}", value, width);
    return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string microseconds(double seconds) { return "  " + fitted(seconds * kMicrosPerSecond, 7); }

std::string side(const Timing& timing) {
    return microseconds(timing.seconds) + "  " + fitted(timing.algorithm_bandwidth / kGiga, 6) + "  " +
           fitted(timing.bus_bandwidth / kGiga, 6) +
           (timing.num_wrong ? fmt::format("  {:6g}", static_cast<double>(*timing.num_wrong)) : "     N/A");
}

/// A comment after a row.
std::string beside_line(const Timing& alone, const Beside& beside) {
    return fmt::format(
        "# beside products: {:.1f} us, {:.2f} times as long as alone; a product {:.1f} us, {:.2f} times\n",
        beside.seconds * kMicrosPerSecond, beside.seconds / alone.seconds, beside.product * kMicrosPerSecond,
        beside.product / beside.product_alone);
}

}  // namespace

std::string json_report(const Results& results, const Options& options, const Setting& setting) {
    Json rows = Json::array(), axes = Json::array();
    for (const AxisResults& axis : results.axes) {
        for (const Row& row : axis.rows) rows.push_back(row_json(axis, row));
        axes.push_back(axis_json(axis, options));
    }
    Json config = config_json(options);
    config["devices"] = devices_json(setting.ranks, results.choice);
    const Json report = {{"format", kJsonMark},
                         {"version", kVersion},
                         {"program_version", version()},
                         {"start_time", utc(results.started)},
                         {"end_time", utc(results.ended)},
                         {"collective", options.collective},
                         {"backend", results.choice.backend},
                         {"library", results.choice.library},
                         {"args", setting.arguments},
                         {"env", environment_json()},
                         {"config", config},
                         {"results", rows},
                         {"axes", axes},
                         {"okay", results.passed(options)}};
    return json_text(report, 2) + "\n";
}

std::string preamble(const Options& options, const BackendChoice& choice,
                     const std::vector<RankInfo>& ranks) {
    const Sweep& sweep = options.sweep;
    const bool by_factor = sweep.factor > 1;
    std::string text = fmt::format("# nccl-bench {}, over {}\n# Collective test starting: {}\n", version(),
                                   choice.library, options.collective);
    text += fmt::format(
        "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: 1 "
        "validation: {} graph: 0 unalign: 0\n#\n# Using devices\n",
        sweep.min_bytes, sweep.max_bytes, by_factor ? sweep.factor : sweep.step_bytes,
        by_factor ? "factor" : "bytes", options.warmup, options.iterations, options.checks);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device ", rank, ranks[rank].process,
                            ranks[rank].host);
        if (choice.devices.empty()) {
            text += "-1 [-] host memory\n";
        } else {
            const cuda::Device& device = choice.devices[rank];
            text += fmt::format("{:2} [{}] {}\n", device.number, device.pci_bus_id, device.name);
        }
    }
    return text;
}

std::string table_header(const AxisResults& axis, const Options& options) {
    std::string text = "#\n";
    if (options.mesh) {
        text += fmt::format("# Mesh axis {}: {} x {} ranks, all groups at the same time\n", axis.name,
                            axis.num_groups, axis.group_size);
    }
    if (!axis.transport.empty()) text += fmt::format("# Transport: {}\n", fmt::join(axis.transport, "; "));
    text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "", "", "", "", "");
    text += "           out-of-place                       in-place          \n";
    text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop", "root");
    for (int side = 0; side < 2; ++side)
        text += fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "time", "algbw", "busbw", "#wrong");
    text += options.percentiles ? "   oop_p50  oop_p99   ip_p50   ip_p99\n" : " \n";
    text += fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", "");
    for (int side = 0; side < 2; ++side)
        text += fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
    text += options.percentiles ? "      (us)     (us)     (us)     (us)\n" : " \n";
    return text;
}

std::string table_row(const Row& row, const Options& options) {
    const int root = row.kind.collective->rooted ? row.kind.root : -1;
    std::string text =
        fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}", row.kind.bytes, row.kind.chunk_elements,
                    name(row.kind.type), name(row.kind.reduction), root);
    text += side(row.out_of_place) + side(row.in_place);
    for (const Timing* timing : {&row.out_of_place, &row.in_place}) {
        if (options.percentiles)
            text += microseconds(timing->slowest.p50) + microseconds(timing->slowest.p99);
    }
    return text + "\n" + (row.beside ? beside_line(row.out_of_place, *row.beside) : "");
}

std::string table_footer(const AxisResults& axis, const Options& options) {
    const int64_t wrong = axis.num_wrong();
    const char* outcome = "";
    if (options.min_bus_bandwidth) outcome = below_minimum(axis, options) ? "FAILED" : "OK";
    const char* const right = options.checks > 0 ? "OK" : "OK (nothing was verified)";
    return fmt::format("# {:<20} : {} {}\n# {:<20} : {:g} {}\n#\n", "Out of bounds values", wrong,
                       wrong == 0 ? right : "FAILED", "Avg bus bandwidth", axis.mean_bus_bandwidth(),
                       outcome);
}

std::string epilogue(const Options& options) {
    return fmt::format("# Collective test concluded: {}\n#\n", options.collective);
}

}  // namespace argosy::bench
