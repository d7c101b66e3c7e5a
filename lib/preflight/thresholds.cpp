#include "preflight/thresholds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

// The hunt for bad nodes (nodes.h) calls nodes above 0.75 good, so a higher limit would mean nothing.
constexpr Threshold kThresholds[] = {
    {"peers", &Thresholds::peers, 0.75, "the others' median: FAIL for devices, nodes and groups in a node"},
    {"line", &Thresholds::line, 1, "a node's adapters, between nodes: WARN"},
    {"line-fail", &Thresholds::line_fail, 1, "the same: FAIL for data of GPUs"},
    {"nvlink", &Thresholds::nvlink, 1, "NVLink, for collectives within a node: WARN"},
    {"peak", &Thresholds::peak, 1, "the datasheet, for sustained products: WARN"},
    {"pcie", &Thresholds::pcie, 1, "the PCIe link, for copies: WARN"},
    {"clocks", &Thresholds::clocks, 1, "the median of GPUs of the same model under load: WARN"},
};

}  // namespace

std::span<const Threshold> threshold_table() { return kThresholds; }

void set_threshold(const std::string& setting, Thresholds& thresholds) {
    const size_t end = std::min(setting.find('='), setting.size());
    const auto found = std::ranges::find(kThresholds, setting.substr(0, end), &Threshold::name);
    if (found == std::end(kThresholds)) {
        std::vector<std::string> names;
        for (const Threshold& one : kThresholds) names.emplace_back(one.name);
        throw UserError("--threshold {}: there is no limit of this name; there are {}", setting,
                        fmt::join(names, ", "));
    }
    const auto value = leading_number(setting.substr(std::min(end + 1, setting.size())));
    if (!value || *value <= 0 || *value > found->max)
        throw UserError("--threshold {}: write {}=SHARE, above 0 and at most {}", setting, found->name,
                        found->max);
    thresholds.*found->value = *value;
}

}  // namespace argosy::preflight
