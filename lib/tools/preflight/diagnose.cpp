#include "preflight/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace argosy::preflight {
namespace {

struct Row {
    Check check;
    bool of_gpus = false;  // only GPUs can have what the check finds
};

constexpr Row kChecks[] = {
    {check_programs_alike},
    {check_run_inputs_alike},
    {check_variables_alike},
    {check_slow_settings},
    {check_interfaces},
    {check_named_adapters},
    {check_adapter_links},
    {check_adapter_rates},
    {check_adapter_choice},
    {check_visible_gpus},
    {check_ranks_per_gpu},
    {.check = check_gpu_answers, .of_gpus = true},
    {.check = check_num_gpus, .of_gpus = true},
    {.check = check_gpu_states, .of_gpus = true},
    {.check = check_gpus_alike, .of_gpus = true},
    {.check = check_dcgm, .of_gpus = true},
    {check_products},
    {.check = check_gpu_memory_under_stress, .of_gpus = true},
    {check_locked_memory},
    {check_shared_memory},
    {check_binding},
    {check_dump_folder},
};

/// Something that is unknown about nodes, and the reason.
struct NodeGap {
    const char *what, *why;
    bool (*has)(const NodeFacts&);
};
bool any_gpu(const NodeFacts& node, bool (*lacks)(const Gpu&)) {
    return std::ranges::any_of(node.gpus, lacks);
}
constexpr NodeGap kNodeGaps[] = {
    {"GPUs", "there is no nvidia-smi in PATH", [](const NodeFacts& node) { return !node.has_nvidia_smi; }},
    {"clocks that heat lowers", "nvidia-smi gives no reasons for low clocks",
     [](const NodeFacts& node) {
         return any_gpu(node, [](const Gpu& gpu) { return !gpu.throttle_reasons; });
     }},
    {"memory errors of GPUs", "nvidia-smi counts none (no ECC, or it is off)",
     [](const NodeFacts& node) {
         return any_gpu(node, [](const Gpu& gpu) { return !gpu.uncorrected_errors; });
     }},
    {"GPUs",
     "nvidia-smi ran out of time: in each look, its calls and DCGM's together have 30 s, or half of "
     "--timeout",
     [](const NodeFacts& node) { return node.gpus_out_of_time; }},
    {"GPUs under load", "nvidia-smi was not asked then, or did not answer in time",
     [](const NodeFacts& node) { return !node.gpus.empty() && node.gpus_under_load.empty(); }},
    {"the dump folder", "the job names none",
     [](const NodeFacts& node) { return !node.dump_folder.has_value(); }},
};

std::string line_of(const std::string& what, const std::string& where, const std::string& why) {
    return fmt::format("{}, {}: {}", what, where, why);
}

/// Whether the check of a finding is named after a variable that only GPU libraries read.
bool is_variable_of_gpus(std::string_view check) {
    constexpr std::string_view kPrefixes[] = {"NCCL_", "CUDA_", "CUBLAS_", "NVIDIA_", "PYTORCH_"};
    return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return check.starts_with(prefix); });
}

}  // namespace

std::vector<std::string> not_checked(const Cluster& cluster) {
    std::vector<std::string> lines;
    for (const NodeGap& gap : kNodeGaps) {
        std::vector<std::string> nodes;
        for (const NodeFacts& node : cluster.nodes) {
            if (gap.has(node)) nodes.push_back(node.name);
        }
        if (!nodes.empty()) lines.push_back(line_of(gap.what, describe_nodes(nodes, cluster), gap.why));
    }
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> nodes_by_answer;  // of DCGM
    for (const NodeFacts& node : cluster.nodes) {
        for (const DcgmAnswer& answer : node.dcgm) {
            if (answer.not_judged.empty()) continue;
            std::vector<std::string>& nodes = nodes_by_answer[{answer.command, answer.not_judged}];
            if (nodes.empty() || nodes.back() != node.name) nodes.push_back(node.name);
        }
    }
    for (const auto& [answer, nodes] : nodes_by_answer)
        lines.push_back(line_of(answer.first, describe_nodes(nodes, cluster), answer.second));
    return lines;
}

std::vector<Finding> diagnose(const Cluster& cluster) {
    // A build without CUDA leaves the version empty, and computes and communicates without GPUs.
    const bool uses_gpus =
        std::ranges::any_of(cluster.ranks, [](const RankFacts& rank) { return !rank.cuda_version.empty(); });
    std::vector<Finding> findings;
    for (const auto& [check, of_gpus] : kChecks) {
        std::vector<Finding> found = check(cluster);
        for (Finding& finding : found) {
            const bool is_unused = !uses_gpus && (of_gpus || is_variable_of_gpus(finding.check));
            if (!is_unused || finding.severity != Severity::Fail) continue;
            finding.severity = Severity::Warn;
            finding.what += "; this build does not use GPUs";
            finding.bad_nodes.clear();
        }
        append(std::move(found), findings);
    }
    return findings;
}

}  // namespace argosy::preflight
