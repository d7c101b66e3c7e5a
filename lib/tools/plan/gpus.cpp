#include "plan/gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/units.h"

namespace argosy::plan {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

/// Source: NVIDIA's datasheets (dense products with sums in fp32; NVLink in one direction, 0: none). Between
/// nodes: one 400 Gb/s adapter for each GPU, 200 Gb/s for A100, L40S and RTX 4090. memory_gib is the
/// smallest total that CUDA reported in public logs of a memory of memory_gb.
struct Sheet {
    const char* name;
    int capability;
    double float8_tflops, narrow_tflops, fp32_tflops, fp64_tflops;
    double memory_gb, memory_gib, memory_gb_per_second, nvlink_gb_per_second, pcie_gb_per_second,
        network_gb_per_second;
};

// The share of the peak that products reach is a property of a program. This program's was fitted to its
// speeds on one H200 (700 W): Qwen2.5 0.5B, 1.5B, 3B and 7B with 1024 tokens, bf16 weights and states, at
// 166,965, 61,062, 31,590 and 13,996 tokens/s (tests/gpu/results/). Other kinds of GPUs are taken to reach
// the same share of their peaks. Another program's speeds with the same four models on one H100 (149,500,
// 58,900, 30,900 and 13,850 tokens/s) leave shares of 0.67, 0.72, 0.72 and 0.67 to products beside the
// planned passes, within 4 % of their mean. Divided by the efficiency of tiles of 128 x 256 in whole waves
// over 132 multiprocessors they differ from it by up to 18 %, or 5 % if sums may be split: a model of sizes
// predicts no better.
//
// Products of float8 are taken to reach the same share of their peak as those of bf16. No share was fitted to
// them: with microbatches of 8192 tokens, four to a step, 7B made 21,739 tokens/s of an H200 in float8 with
// one scale for a matrix and weights cast once, 21,023 with weights cast in each microbatch, and 19,735 with
// a scale for each row; the plan says 22,053, 21,576 and 19,561. Products with fp32 scales for blocks of 128
// terms are slower on Hopper: all of 7B's reached 0.81 of the speed of those with one scale (gemm_speed).
// The plan says 18,738 for blocks, and 18,062 were measured.
//
// TorchTitan's share was fitted to one of its published runs: Llama 3.1 8B on 8 H100 (500 W, 2.4 TB/s) with
// FSDP, compiled, bf16, 8192 tokens, 2 sequences a rank, selective recomputation, at 6,667 tokens/s a GPU.
struct Program {
    const char* name;
    double product_share;  // of the peak
    const char* calibration;
};
constexpr Program kPrograms[] = {
    {"argosy", 0.7, "as on one H200, within 3 % there; other kinds are assumed to be alike"},
    {"torchtitan", 0.4155, "as TorchTitan's run of 8B on 8 H100"},
};
constexpr Sheet kSheets[] = {
    {"a100", 80, 0, 312, 19.5, 19.5, 80, 79.1, 2039, 300, 32, 25},
    {"h100", 90, 1979, 989, 67, 67, 80, 79.1, 3350, 450, 64, 50},
    {"h200", 90, 1979, 989, 67, 67, 141, 139.7, 4800, 450, 64, 50},
    {"b200", 100, 4500, 2250, 80, 40, 192, 178.3, 8000, 900, 64, 50},
    {"l40s", 89, 733, 362, 91.6, 1.4, 48, 44.4, 864, 0, 32, 25},
    {"rtx4090", 89, 330.4, 165.2, 82.6, 1.3, 24, 23.5, 1008, 0, 32, 25},
};
constexpr double kAttentionOfProduct = 0.7, kPassShare = 0.6, kLinkShare = 0.8;
constexpr double kLaunchSeconds = 3e-6, kInNodeLatency = 2e-6, kBetweenNodesLatency = 8e-6;
// Not measured: CUDA's context, workspaces of products, and six NCCL communicators of 24 channels that receive
// (nccl::kChannelBytes each). A mesh of four axes has twice as many; the log of a run says what they took.
constexpr int64_t kReservedBytes = 3 * kGibi;

/// A number and the unit after it: "25GB/s". None if there is no number.
struct Quantity {
    double number;
    std::string unit;
};
std::optional<Quantity> quantity(std::string_view text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !std::isfinite(number) || !(number > 0)) return std::nullopt;
    return Quantity{number, std::string(end, text.data() + text.size())};
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

const Program& program_of(const std::string& name) {
    const auto found = std::ranges::find(kPrograms, name.empty() ? kPrograms[0].name : name, &Program::name);
    if (found != std::end(kPrograms)) return *found;
    throw UserError("--program {} is unknown; known are argosy and torchtitan", name);
}

/// The bytes a second of "25GB/s", "3.35TB/s" or "200Gb/s".
double speed_of(const char* option, const std::string& words) {
    const auto speed = quantity(words);
    if (speed && speed->unit == "TB/s") return speed->number * kTera;
    if (speed && speed->unit == "GB/s") return speed->number * kGiga;
    if (speed && (speed->unit == "Gb/s" || speed->unit == "Gbit/s")) return speed->number * kGiga / 8;
    throw UserError("{} must be a GPU's speed in one direction, as 25GB/s or 200Gb/s; but is '{}'", option,
                    words);
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

/// The least total that CUDA reports. `memory_gb`: in place of the sheet's.
int64_t memory_bytes(const Sheet& sheet, std::optional<double> memory_gb,
                     const config::PlanRequest& request) {
    constexpr double kMost = 1024, kReportedGibOfGb = 0.98;
    if (memory_gb && request.gpu_memory_gib > 0)
        throw UserError("--gpu {} has a memory, and --gpu-memory is another; leave one out", request.device);
    const double reported = std::min(kReportedGibOfGb, sheet.memory_gib / sheet.memory_gb);
    const double gib = request.gpu_memory_gib > 0 ? request.gpu_memory_gib
                       : memory_gb                ? *memory_gb * reported
                                                  : sheet.memory_gib;
    if (gib * kGibi > kReservedBytes && gib <= kMost) return static_cast<int64_t>(gib * kGibi);
    throw UserError(
        "a memory of {:.3g} GiB; it must be above {} GiB, which CUDA and NCCL take, and at most {}", gib,
        kReservedBytes / kGibi, kMost);
}

}  // namespace

Machine named_gpu(const config::PlanRequest& request) {
    const auto [name, memory_gb] = name_and_memory(request.device);
    const Sheet& sheet = sheet_of(name);
    const Program& program = program_of(request.program);
    const double product_share = request.product_share > 0 ? request.product_share : program.product_share;
    return {.name = request.device,
            .is_gpu = true,
            .ranks_per_node = request.gpus_per_node,
            .memory_bytes = memory_bytes(sheet, memory_gb, request),
            .reserved_bytes = kReservedBytes,
            .capability = sheet.capability,
            .float8_flops = sheet.float8_tflops * kTera,
            .narrow_flops = sheet.narrow_tflops * kTera,
            .fp32_flops = sheet.fp32_tflops * kTera,
            .fp64_flops = sheet.fp64_tflops * kTera,
            .memory_speed = request.memory_speed.empty() ? sheet.memory_gb_per_second * kGiga
                                                         : speed_of("--memory-speed", request.memory_speed),
            .in_node = {in_node_link(sheet, request.nvlink)},
            .between_nodes = {network_link(sheet, request)},
            .product_share = product_share,
            .attention_share = kAttentionOfProduct * product_share,
            .pass_share = kPassShare,
            .launch_seconds = kLaunchSeconds,
            .calibration = request.product_share > 0 ? "--product-share" : program.calibration};
}

Machine named_gpu(const std::string& name) {
    config::PlanRequest request;
    request.device = name;
    return named_gpu(request);
}

std::vector<std::string> gpu_names() {
    std::vector<std::string> names;
    for (const Sheet& sheet : kSheets) names.emplace_back(sheet.name);
    return names;
}

}  // namespace argosy::plan
