// Checks the GPUs of nodes: whether they answer, which errors the kernel has logged, and whether they are
// alike and usable.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "preflight/checks.h"
#include "preflight/places.h"

namespace argosy::preflight {
namespace {

/// A property that all GPUs should have in common.
struct Property {
    const char* check;
    std::string (*value)(const Gpu&);
    const char* remedy;
};
constexpr Property kProperties[] = {
    {"GPU models", [](const Gpu& gpu) { return gpu.name; },
     "ask for nodes of one kind: the slowest GPU sets the pace"},
    {"GPU drivers", [](const Gpu& gpu) { return gpu.driver; }, "install the same driver on all nodes"},
    {"GPU PCIe generation",
     [](const Gpu& gpu) { return fmt::format("{}", gpu.most_pcie_generation.value_or(0)); },
     "look at the slot, and at the firmware's settings"},
};

/// XIDs that mean that the GPU, its memory or its links are broken. A program causes most other XIDs.
constexpr std::array kHardwareXids = {48, 62, 64, 74, 79, 95, 119, 120, 140, 143};
constexpr std::array kMemoryXids = {63, 92, 94};
constexpr double kRecentHours = 24;

template <size_t N>
bool among(const std::array<int, N>& codes, int code) {
    return std::ranges::find(codes, code) != codes.end();
}

}  // namespace

std::vector<Finding> check_gpu_answers(const Cluster& cluster) {
    constexpr const char* kGoneWords[] = {"is lost", "Unable to determine the device handle",
                                          "requires a reset", "fallen off the bus"};
    NodeFindings found("nvidia-smi", Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        const std::string& problem = node.gpus_problem;
        const bool gone =
            std::ranges::any_of(kGoneWords, [&](auto words) { return problem.find(words) != problem.npos; });
        if (node.gpus_hang) {
            found.add(node.name, {Severity::Fail, "it does not answer: the driver or a GPU hangs",
                                  "leave the node out; restart it"});
        } else if (gone) {
            found.add(node.name,
                      {Severity::Fail, problem, "leave the node out; reset the GPU or restart the node"});
        } else if (!problem.empty()) {
            found.add(node.name, {Severity::Warn, problem + "; GPUs may be unchecked",
                                  "see what nvidia-smi says there"});
        }
    }
    return found.findings(cluster);
}

/// An error without a time gets WARN, because it may be old.
std::vector<Finding> check_gpu_errors_logged(const Cluster& cluster) {
    NodeFindings found("GPU errors in the kernel's log", Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        for (const Xid& xid : node.xids) {
            const bool hardware = among(kHardwareXids, xid.code);
            if (!hardware && !among(kMemoryXids, xid.code)) continue;
            const bool recent = xid.age_hours && *xid.age_hours < kRecentHours;
            const std::string what = fmt::format("XID {} of GPU {}{}", xid.code, xid.bus_id,
                                                 !xid.age_hours ? ""
                                                 : recent       ? ", within the last day"
                                                                : ", more than a day ago");
            if (hardware && recent) {
                found.add(node.name,
                          {Severity::Fail, what, "leave the node out; look the XID up, restart the node"});
            } else {
                found.add(node.name, {Severity::Warn, what, "look the XID up in NVIDIA's list"});
            }
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_gpu_numbers(const Cluster& cluster) {
    NodeFindings found("number of GPUs", Blame::Always);
    std::vector<double> counts;
    for (const NodeFacts& node : cluster.nodes) counts.push_back(static_cast<double>(node.gpus.size()));
    const double expected = upper_median(counts);
    for (size_t i = 0; i < cluster.nodes.size(); ++i) {
        if (counts[i] == expected) continue;
        const bool fewer = counts[i] < expected;
        found.add(cluster.nodes[i].name,
                  {fewer ? Severity::Fail : Severity::Warn,
                   fmt::format("GPUs there: {}, on other nodes: {}", counts[i], expected),
                   fewer ? "leave the node out; see nvidia-smi and the kernel's log there"
                         : "ask for nodes of one kind"});
    }
    return found.findings(cluster);
}

std::vector<Finding> check_gpus_alike(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const Property& property : kProperties) {
        std::map<std::string, int> gpus_by_value;
        for (const NodeFacts& node : cluster.nodes) {
            for (const Gpu& gpu : node.gpus) ++gpus_by_value[property.value(gpu)];
        }
        if (gpus_by_value.size() < 2) continue;
        const auto usual =
            std::ranges::max_element(gpus_by_value, {}, [](const auto& entry) { return entry.second; });
        NodeFindings found(property.check);
        for (const NodeFacts& node : cluster.nodes) {
            for (const Gpu& gpu : node.gpus) {
                const std::string value = property.value(gpu);
                if (value == usual->first) continue;
                found.add(node.name,
                          {Severity::Warn, fmt::format("'{}', most have '{}'", value, usual->first),
                           property.remedy});
            }
        }
        std::ranges::move(found.findings(cluster), std::back_inserter(findings));
    }
    return findings;
}

std::vector<Finding> check_gpu_compute_mode(const Cluster& cluster) {
    NodeFindings found("GPU compute mode");
    constexpr const char* kRemedy = "nvidia-smi -c DEFAULT";
    for (const NodeFacts& node : cluster.nodes) {
        const bool shared = ranks_on(node.name, cluster) > static_cast<int>(node.gpus.size());
        for (const Gpu& gpu : node.gpus) {
            if (gpu.compute_mode == "Prohibited") {
                found.add(node.name,
                          {Severity::Fail, "it is Prohibited: no program may use the GPU", kRemedy});
            } else if (gpu.compute_mode.starts_with("Exclusive") && shared) {
                found.add(node.name, {Severity::Fail,
                                      "it is exclusive, and the node has more ranks than GPUs", kRemedy});
            } else if (gpu.compute_mode.starts_with("Exclusive")) {
                found.add(node.name, {Severity::Warn,
                                      "it is exclusive: one process a GPU, and no tools beside it", kRemedy});
            }
        }
    }
    return found.findings(cluster);
}

}  // namespace argosy::preflight
