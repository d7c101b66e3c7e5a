#include "bench/report.h"

#include <fmt/chrono.h>

#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/program.h"

namespace argosy::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 2;

std::string utc(Clock::time_point time) {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(Clock::to_time_t(time)));
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

const char* word(AcrossRanks across) {
    constexpr const char* kNames[] = {"rank0", "mean", "min", "max"};
    return kNames[static_cast<int>(across)];
}

Json environment_json() {
    Json found = Json::object();
    for (const auto& [variable, value] : communication_variables()) found[variable] = value;
    return found;
}

/// One entry per rank.
Json devices_json(const std::vector<RankInfo>& ranks, const Carrier& carrier) {
    Json list = Json::array();
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        Json device = nullptr;
        if (!carrier.devices.empty()) {
            const cuda::Device& one = carrier.devices[rank];
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
                   {"aggregated_iterations", options.aggregated},
                   {"run_cycles", options.cycles},
                   {"validation", options.checks},
                   {"across_ranks", word(options.across_ranks)},
                   {"blocking_calls", options.blocking_calls},
                   {"per_iter_skip", options.skipped},
                   {"timeout_seconds", options.timeout_seconds},
                   {"mesh", nullptr}});
    if (options.mesh) config["mesh"] = {options.mesh->across, options.mesh->within};
    return config;
}

Json timing_json(const Timing& timing, const Options& options) {
    Json result = {{"time_us", timing.seconds * kMicro}};
    if (options.time_to_start) result["cpu_time_us"] = timing.start_seconds * kMicro;
    const Distribution& slowest = timing.slowest;
    result.update({{"alg_bw", timing.algorithm_bandwidth / kGiga},
                   {"bus_bw", timing.bus_bandwidth / kGiga},
                   {"nwrong", or_null(timing.num_wrong)},
                   {"slowest_rank_us",
                    {{"min", slowest.min * kMicro},
                     {"p50", slowest.p50 * kMicro},
                     {"p99", slowest.p99 * kMicro},
                     {"max", slowest.max * kMicro},
                     {"mean", slowest.mean * kMicro},
                     {"cv_percent", slowest.variation_percent()}}}});
    return result;
}

Json row_json(const AxisResults& axis, const Row& row, const Options& options) {
    const bool rooted = row.kind.collective->rooted, reduces = row.kind.collective->reduces;
    return {{"axis", axis.name},
            {"cycle", row.cycle},
            {"size", row.kind.bytes},
            {"count", row.kind.chunk_elements},
            {"type", name(row.kind.type)},
            {"redop", reduces ? Json(name(row.kind.operation)) : Json(nullptr)},
            {"root", rooted ? Json(row.kind.root) : Json(nullptr)},
            {"out_of_place", timing_json(row.out_of_place, options)},
            {"in_place", timing_json(row.in_place, options)},
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

void append_side(std::string& line, const Timing& timing) {
    line +=
        fmt::format(",{},{},{},{}", timing.seconds * kMicro, timing.algorithm_bandwidth / kGiga,
                    timing.bus_bandwidth / kGiga, timing.num_wrong ? fmt::to_string(*timing.num_wrong) : "");
    const Distribution& slowest = timing.slowest;
    line += fmt::format(",{},{},{},{}", slowest.min * kMicro, slowest.p50 * kMicro, slowest.p99 * kMicro,
                        slowest.max * kMicro);
}

}  // namespace

std::string json_report(const Results& results, const Options& options, const Setting& setting) {
    Json rows = Json::array(), axes = Json::array();
    for (const AxisResults& axis : results.axes) {
        for (const Row& row : axis.rows) rows.push_back(row_json(axis, row, options));
        axes.push_back(axis_json(axis, options));
    }
    Json config = config_json(options);
    config["devices"] = devices_json(setting.ranks, results.carrier);
    const Json report = {{"format", kJsonMark},
                         {"version", kVersion},
                         {"program_version", version()},
                         {"start_time", utc(results.started)},
                         {"end_time", utc(results.ended)},
                         {"collective", options.collective},
                         {"backend", results.carrier.backend},
                         {"library", results.carrier.library},
                         {"args", setting.arguments},
                         {"env", environment_json()},
                         {"config", config},
                         {"results", rows},
                         {"axes", axes},
                         {"okay", results.passed(options)}};
    return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string csv_report(const Results& results) {
    std::string text = kCsvMark;
    for (const char* side : {"oop", "ip"}) {
        for (const char* column :
             {"time_us", "algbw_gbps", "busbw_gbps", "nwrong", "min_us", "p50_us", "p99_us", "max_us"}) {
            text += fmt::format(",{}_{}", side, column);
        }
    }
    text += "\n";
    for (const AxisResults& axis : results.axes) {
        for (const Row& row : axis.rows) {
            const Case& kind = row.kind;
            std::string line = fmt::format("{},{},{},{},{},{},{},{},{},{}", kind.collective->name, axis.name,
                                           axis.num_groups, axis.group_size, row.cycle, kind.bytes,
                                           kind.chunk_elements, name(kind.type), name(kind.operation),
                                           kind.collective->rooted ? fmt::to_string(kind.root) : "");
            append_side(line, row.out_of_place);
            append_side(line, row.in_place);
            text += line + "\n";
        }
    }
    return text;
}

}  // namespace argosy::bench
