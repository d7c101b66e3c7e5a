#include "plan/gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/units.h"

namespace argosy::plan {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

/// Source: NVIDIA's datasheets (dense products with sums in fp32; NVLink in one direction, 0: none). Between
/// nodes: one 400 Gb/s adapter for each GPU, 200 Gb/s for A100, L40S and RTX 4090. The memory is the smallest
/// total that CUDA reported in public logs: it is one to four GiB less than the datasheet's.
struct Sheet {
    const char* name;
    int capability;
    double float8_tflops, narrow_tflops, fp32_tflops, fp64_tflops;
    double memory_gib, memory_gb_per_second, nvlink_gb_per_second, pcie_gb_per_second, network_gb_per_second;
    double product_share;  // of the peak
};

// The share of the peak that products reach was fitted to one published run of another program: Llama 3.1 8B
// on 8 H100 (500 W) with FSDP, compiled, bf16, 8192 tokens, 2 sequences a rank, selective recomputation, at
// 6,667 tokens/s a GPU. An H200's share was fitted to this program's speeds on one (700 W): Qwen2.5 0.5B,
// 1.5B, 3B and 7B with 1024 tokens, bf16 weights and states, at 166,965, 61,062, 31,590 and 13,996 tokens/s
// (tests/gpu/results/). The ratios between the shares are assumptions.
//
// The shares do not depend on sizes. Published speeds of another program with the same four models on one
// H100 (149,500, 58,900, 30,900 and 13,850 tokens/s) leave shares of 0.67, 0.72, 0.72 and 0.67 to products
// beside the planned passes, within 4 % of their mean. Divided by the efficiency of tiles of 128 x 256 in
// whole waves over 132 multiprocessors they differ from it by up to 18 %, or 5 % if sums may be split: such a
// model predicts no better.
//
// Products of float8 are taken to reach the same share of their peak as those of bf16. No share was fitted to
// them: with microbatches of 8192 tokens, four to a step, 7B made 21,739 tokens/s of an H200 in float8 with
// one scale for a matrix and weights cast once, 21,023 with weights cast in each microbatch, and 19,735 with
// a scale for each row; the plan says 22,053, 21,576 and 19,561. Products with fp32 scales for blocks of 128
// terms are slower on Hopper: all of 7B's reached 0.81 of the speed of those with one scale (gemm_speed).
// With that the plan says 18,738, and 18,062 were measured.
constexpr double kPublishedShare = 0.404, kMeasuredShare = 0.7;
constexpr Sheet kSheets[] = {
    {"a100", 80, 0, 312, 19.5, 19.5, 79.1, 2039, 300, 32, 25, kPublishedShare},
    {"h100", 90, 1979, 989, 67, 67, 79.1, 3350, 450, 64, 50, kPublishedShare},
    {"h200", 90, 1979, 989, 67, 67, 139.7, 4800, 450, 64, 50, kMeasuredShare},
    {"b200", 100, 4500, 2250, 80, 40, 178.3, 8000, 900, 64, 50, kPublishedShare},
    {"l40s", 89, 733, 362, 91.6, 1.4, 44.4, 864, 0, 32, 25, kPublishedShare},
    {"rtx4090", 89, 330.4, 165.2, 82.6, 1.3, 23.5, 1008, 0, 32, 25, kPublishedShare},
};
constexpr double kAttentionOfProduct = 0.7, kPassShare = 0.6, kLinkShare = 0.8;
constexpr double kLaunchSeconds = 3e-6, kInNodeLatency = 2e-6, kBetweenNodesLatency = 8e-6;
// The context of CUDA, workspaces of products and buffers of NCCL.
constexpr int64_t kReservedBytes = 3 * kGibi;
/// What CUDA reports of a memory of so many GB, at least.
constexpr double kReportedGibOfGb = 0.98;

/// A number and the unit after it, in lower case: "25gb/s". None if there is no number.
struct Quantity {
    double number;
    std::string unit;
};
std::optional<Quantity> quantity(std::string_view text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !(number > 0)) return std::nullopt;
    return Quantity{number, std::string(end, text.data() + text.size())};
}

std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

/// "h100:96", "a100-40gb": the name, and GB if there are any.
std::pair<std::string, std::optional<double>> name_and_memory(const std::string& words) {
    const size_t end = words.find_first_of(":-");
    if (end == words.npos) return {words, std::nullopt};
    const auto memory = quantity(std::string_view(words).substr(end + 1));
    const bool has_unit = memory && (memory->unit.empty() || memory->unit == "gb" || memory->unit == "gib");
    if (!has_unit) return {words, std::nullopt};
    return {words.substr(0, end), memory->number};
}

const Sheet& sheet_of(const std::string& name) {
    const auto found = std::ranges::find(kSheets, name, &Sheet::name);
    if (found != std::end(kSheets)) return *found;
    if (name.starts_with("mi") && name.size() > 2 && std::isdigit(static_cast<unsigned char>(name[2])))
        throw UserError("--gpu {}: GPUs of AMD cannot run this program, which is built on CUDA and NCCL",
                        name);
    throw UserError("--gpu {} is unknown; known are {} and {}, in any case, also with a memory as in h100:96",
                    name, fmt::join(gpu_names(), ", "), config::PlanRequest::kCpu);
}

Link link(double bytes_per_second, double latency, const std::string& of) {
    return {bytes_per_second * kLinkShare, latency, fmt::format("{:.0f} % of {}", 100 * kLinkShare, of)};
}

/// The bytes a second of "25GB/s" or "200Gb/s".
double speed_of(const char* option, const std::string& words) {
    const auto speed = quantity(words);
    if (speed && speed->unit == "GB/s") return speed->number * kGiga;
    if (speed && (speed->unit == "Gb/s" || speed->unit == "Gbit/s")) return speed->number * kGiga / 8;
    throw UserError("{} must be a GPU's speed in one direction, as 25GB/s or 200Gb/s, or none; but is '{}'",
                    option, words);
}

/// GPUs without NVLink talk over their PCIe slots.
Link in_node_link(const Sheet& sheet, const std::string& nvlink) {
    if (nvlink.empty() && sheet.nvlink_gb_per_second > 0)
        return link(sheet.nvlink_gb_per_second * kGiga, kInNodeLatency, "the datasheet");
    if (nvlink.empty() || nvlink == "none")
        return link(sheet.pcie_gb_per_second * kGiga, kInNodeLatency, "PCIe, without NVLink");
    return link(speed_of("--nvlink", nvlink), kInNodeLatency, "--nvlink");
}

Link network_link(const Sheet& sheet, const config::PlanRequest& request) {
    if (request.network.empty())
        return link(sheet.network_gb_per_second * kGiga, kBetweenNodesLatency, "the datasheet");
    if (request.network != "none")
        return link(speed_of("--network", request.network), kBetweenNodesLatency, "--network");
    if (request.num_ranks > request.gpus_per_node) {
        throw UserError(
            "--network none, but {} GPUs with {} on a node need one; give its speed, as --network 25GB/s",
            request.num_ranks, request.gpus_per_node);
    }
    return {};
}

}  // namespace

Machine named_gpu(const config::PlanRequest& request) {
    const auto [name, memory_gb] = name_and_memory(lower(request.device));
    const Sheet& sheet = sheet_of(name);
    const double memory_gib = request.gpu_memory_gib > 0 ? request.gpu_memory_gib
                              : memory_gb                ? *memory_gb * kReportedGibOfGb
                                                         : sheet.memory_gib;
    const double product_share = request.product_share > 0 ? request.product_share : sheet.product_share;
    return {.name = lower(request.device),
            .is_gpu = true,
            .ranks_per_node = request.gpus_per_node,
            .memory_bytes = static_cast<int64_t>(memory_gib * kGibi),
            .reserved_bytes = kReservedBytes,
            .capability = sheet.capability,
            .float8_flops = sheet.float8_tflops * kTera,
            .narrow_flops = sheet.narrow_tflops * kTera,
            .fp32_flops = sheet.fp32_tflops * kTera,
            .fp64_flops = sheet.fp64_tflops * kTera,
            .memory_speed = sheet.memory_gb_per_second * kGiga,
            .in_node = {in_node_link(sheet, request.nvlink)},
            .between_nodes = {network_link(sheet, request)},
            .product_share = product_share,
            .attention_share = kAttentionOfProduct * product_share,
            .pass_share = kPassShare,
            .launch_seconds = kLaunchSeconds};
}

Machine named_gpu(const std::string& name, double product_share) {
    config::PlanRequest request;
    request.device = name;
    request.product_share = product_share;
    return named_gpu(request);
}

std::vector<std::string> gpu_names() {
    std::vector<std::string> names;
    for (const Sheet& sheet : kSheets) names.emplace_back(sheet.name);
    return names;
}

}  // namespace argosy::plan
