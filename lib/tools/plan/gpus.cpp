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
#include "observe/peak_flops.h"

namespace argosy::plan {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

/// Source: NVIDIA's datasheets (dense products with sums in fp32; NVLink in one direction, 0: none). Between
/// nodes: one 400 Gb/s adapter for each GPU, 200 Gb/s for A100, L40S and RTX 4090. memory_gib is the
/// smallest total that CUDA reported in public logs of a memory of memory_gb.
struct Sheet {
    const char* name;
    int capability, multiprocessors;
    double watts;
    double float8_tflops, narrow_tflops, fp32_tflops, fp64_tflops;
    double best_tflops;  // of bf16 products at `watts`, in short loops
    double memory_gb, memory_gib, memory_gb_per_second, nvlink_gb_per_second, pcie_gb_per_second,
        network_gb_per_second;
    const char* compared;  // with published runs: the table of configs/scaling/README.md
};

// Products take the time of those that a GPU sustains, times a share which is a property of a program, the
// same for products of all sizes and on all kinds of GPUs.
//
// Best: 267.9 on A100, 794.5 on H100, 1745 on B200 (stas00/ml-engineering, short loops of the best of all
// sizes). Sustained: 680 TFLOP/s on one H200 at 700 W (tests/gpu/results/); H100 is taken to be equal, and
// all kinds to sustain as much of their best. L40S and RTX 4090 are taken to have H100's best share of the
// peak.
//
// This program's share was fitted to its speeds on one H200: Qwen2.5 0.5B, 1.5B, 3B and 7B with 1024 tokens,
// bf16 weights and states, at 166,965, 61,062, 31,590 and 13,996 tokens/s (tests/gpu/results/): 0.694 of the
// peak. This share is above what is sustained, because the clock rises again in passes between products.
// Another program's speeds with the same four models on one H100 (149,500, 58,900, 30,900 and 13,850
// tokens/s) leave shares of the peak of 0.67, 0.72, 0.72 and 0.67 to products beside the planned passes,
// within 4 % of their mean. Divided by the efficiency of tiles of 128 x 256 in whole waves over 132
// multiprocessors they differ from it by up to 18 %, or 5 % if sums may be split: a model of sizes predicts
// no better.
//
// Products of float8 are taken to reach the same share of their peak as those of bf16. No share was fitted to
// them: with microbatches of 8192 tokens, four to a step, 7B made 21,739 tokens/s of an H200 in float8 with
// one scale for a matrix and weights cast once, 21,023 with weights cast in each microbatch, and 19,735 with
// a scale for each row; the plan says 22,407, 21,597 and 19,621. Products with fp32 scales for blocks of 128
// terms are slower on Hopper: all of 7B's reached 0.81 of the speed of those with one scale (gemm_speed).
// The plan says 18,726 for blocks, and 18,062 were measured.
//
// The shares of other programs were each fitted to one published run on 8 H100 (configs/scaling/README.md).
struct Program {
    const char* name;
    double share_of_sustained;
    enum class Attention { ByWork, Flash, Cudnn } attention;  // its kernels; ByWork: as ops::Work says
    const char* calibration;
};
// Published runs of TorchTitan had PyTorch's choice of attention, which puts FlashAttention first
// (huggingface/transformers, pull request 48163); Megatron has cuDNN's.
constexpr Program kPrograms[] = {
    {"argosy", 0.694 * 989 / 680, Program::Attention::ByWork, "as on one H200, within 3 % there"},
    {"torchtitan", 0.8792, Program::Attention::Flash, "as TorchTitan's run of 8B on 8 H100"},
    {"megatron", 0.984, Program::Attention::Cudnn, "as Megatron-Bridge's run of 8B in float8 on 8 H100"},
};
constexpr double kSustainedOfBest = 680 / 794.5, kBest = 794.5 / 989;  // of H100; kBest: of its peak
constexpr const char* kNotCompared = "no published run on such a GPU was planned";
constexpr Sheet kSheets[] = {
    {"a100", 80, 108, 400, 0, 312, 19.5, 19.5, 267.9, 80, 79.1, 2039, 300, 32, 25,
     "plans of 5 published runs of dense models on A100 are 5 % slower to 10 % faster"},
    {"a100", 80, 108, 400, 0, 312, 19.5, 19.5, 267.9, 40, 39.4, 1555, 300, 32, 25, kNotCompared},
    {"h100", 90, 132, 700, 1979, 989, 67, 67, 794.5, 80, 79.1, 3350, 450, 64, 50,
     "plans of 9 published runs of dense models on H100 are 16 % slower to 3 % faster, with unknown "
     "microbatches up to 60 % "
     "faster"},
    {"h200", 90, 132, 700, 1979, 989, 67, 67, 794.5, 141, 139.7, 4800, 450, 64, 50,
     "plans of 2 published runs of dense models on H200 are 0 to 2 % faster"},
    {"b200", 100, 148, 1000, 4500, 2250, 80, 40, 1745, 192, 178.3, 8000, 900, 64, 50,
     "the plan of 1 published run of dense models on B200 is 10 % faster"},
    {"l40s", 89, 142, 350, 733, 362, 91.6, 1.4, 362 * kBest, 48, 44.4, 864, 0, 32, 25, kNotCompared},
    {"rtx4090", 89, 128, 450, 330.4, 165.2, 82.6, 1.3, 165.2 * kBest, 24, 23.5, 1008, 0, 32, 25,
     kNotCompared},
};
constexpr double kAttentionOfProduct = 0.7, kPassShare = 0.6, kLinkShare = 0.8;
// On H100 cuDNN's attention is 1.7 to 2.3 times as fast as LibTorch's FlashAttention in shapes of training,
// on A100 0.82 and on L40S 1.0 times (huggingface/transformers, pull request 48163). B200 is taken to be as
// H100.
constexpr double kFlashOfCudnn = 0.5;
constexpr int kHopper = 90;
constexpr double kInNodeLatency = 2e-6, kBetweenNodesLatency = 8e-6;
// A 7B step in float8 on an H200 has 2,705 operations with 3,595 kernels, between which the device waited
// 4.13 ms (tests/gpu/results/). To launch one of its kernels takes a host 2.65 us (ahrefs/ocannl, issue 488),
// and LibTorch's part of an operation 0.9 us (an empty tensor and a sum of 8 x 8 elements, on one processor).
constexpr double kKernelsOfOperation = 3595.0 / 2705;
constexpr double kLaunchSeconds = 4.13e-3 / 2705, kHostSeconds = kKernelsOfOperation * 2.65e-6 + 0.9e-6;
// The channels that NCCL chooses. A collective has a thread block for each, with a multiprocessor to itself:
// 24 among 8 A100 (NVIDIA/nccl, issues 1225 and 689). Messages are taken to have as many.
constexpr int kChannels = 24;
// GPUs of one kind on one cluster differ by 8 % (arXiv 2208.11035). Taken as the whiskers of a box plot of
// normal speeds, which are 5.4 standard deviations apart.
constexpr double kSpreadOfGpus = 0.08 / 5.4;
// An assumption: CUDA's context with all kernels, workspaces of products, rounding by the allocator. The log
// of a run says what is outside of tensors.
constexpr int64_t kReservedBytes = kGibi + kGibi / 2;

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
    const bool has_unit = memory && (memory->unit.empty() || memory->unit == "gb");
    if (!has_unit) return {words, std::nullopt};
    return {words.substr(0, end), memory->number};
}

/// The row with this memory, or the first of this name.
const Sheet& sheet_of(const std::string& name, std::optional<double> memory_gb) {
    const auto has_memory = [&](const Sheet& sheet) {
        return sheet.name == name && sheet.memory_gb == memory_gb;
    };
    auto found = std::ranges::find_if(kSheets, has_memory);
    if (found == std::end(kSheets)) found = std::ranges::find(kSheets, name, &Sheet::name);
    if (found != std::end(kSheets)) return *found;
    if (name.starts_with("mi") && name.size() > 2 && std::isdigit(static_cast<unsigned char>(name[2])))
        throw UserError("--gpu {}: GPUs of AMD cannot run this program, which is built on CUDA and NCCL",
                        name);
    throw UserError(
        "--gpu {} is unknown; known are {} and {}, in any case, also with a memory in GB, as in h100:96",
        name, fmt::join(gpu_names(), ", "), config::PlanRequest::kCpu);
}

Link link(double bytes_per_second, double latency, const std::string& of) {
    return {bytes_per_second * kLinkShare, latency, fmt::format("{:.0f} % of {}", 100 * kLinkShare, of)};
}

const Program& program_of(const std::string& name) {
    const auto found = std::ranges::find(kPrograms, name.empty() ? kPrograms[0].name : name, &Program::name);
    if (found != std::end(kPrograms)) return *found;
    throw UserError("--program {} is unknown; known are argosy, torchtitan and megatron", name);
}

/// The share of the peak that products reach. Below its datasheet's power a GPU lowers its clock, and with it
/// the voltage. If both were in proportion, the speed would follow the cube root of the power; if the voltage
/// cannot fall, the power itself. Taken: the square root. 600 in place of 700 W then cost 7 % of the speed,
/// and 10 to 15 % of a training step by one published figure (factryze.ai, power capping).
double product_share(const Sheet& sheet, const Program& program, const config::PlanRequest& request) {
    if (request.product_share > 0 && request.power > 0)
        throw UserError("--product-share is the share at any power; leave --power out");
    if (request.product_share > 0) return request.product_share;
    if (request.power > sheet.watts)
        throw UserError("--power {}: {} has at most {} W", request.power, request.device, sheet.watts);
    const double power = request.power > 0 ? request.power / sheet.watts : 1;
    const double tflops = program.share_of_sustained * kSustainedOfBest * sheet.best_tflops;
    return tflops / sheet.narrow_tflops * std::sqrt(power);
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
    throw UserError("a memory of {:.3g} GiB; it must be above {} GiB, which CUDA takes, and at most {}", gib,
                    gibibytes(kReservedBytes), kMost);
}

}  // namespace

Machine named_gpu(const config::PlanRequest& request) {
    const auto [name, memory_gb] = name_and_memory(request.device);
    const Sheet& sheet = sheet_of(name, memory_gb);
    const Program& program = program_of(request.program);
    const double share = product_share(sheet, program, request), cudnn_share = kAttentionOfProduct * share;
    const double flash_share = cudnn_share * (sheet.capability < kHopper ? 1 : kFlashOfCudnn);
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
            .product_share = share,
            .attention_share = program.attention == Program::Attention::Flash ? flash_share : cudnn_share,
            .pass_share = kPassShare,
            .flash_share = program.attention == Program::Attention::Cudnn ? cudnn_share : flash_share,
            .launch_seconds = kLaunchSeconds,
            .host_seconds = kHostSeconds,
            .slowest_of_ranks = 1 + kSpreadOfGpus * expected_largest(request.num_ranks),
            .multiprocessors = sheet.multiprocessors,
            .collective_channels = kChannels,
            .message_channels = kChannels,
            .calibration = request.product_share > 0 ? "--product-share" : program.calibration,
            .compared = request.product_share > 0 ? "" : sheet.compared};
}

Machine named_gpu(const std::string& name) {
    config::PlanRequest request;
    request.device = name;
    return named_gpu(request);
}

std::optional<std::string> gpu_of_device(std::string_view device) {
    std::vector<std::string> words = {""};
    for (const char letter : device) {
        if (std::isalnum(static_cast<unsigned char>(letter))) {
            words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
        } else {
            words.emplace_back();
        }
    }
    if (std::ranges::find(words, "pcie") != words.end()) return std::nullopt;
    const double peak = observe::datasheet_peak(device, at::kBFloat16).flops_per_second;
    for (size_t i = 0; i < words.size(); ++i) {
        for (const Sheet& sheet : kSheets) {
            const bool is_named = words[i] == sheet.name || (i > 0 && words[i - 1] + words[i] == sheet.name);
            if (is_named && std::abs(sheet.narrow_tflops * kTera - peak) < 1e-9 * peak) return sheet.name;
        }
    }
    return std::nullopt;
}

std::vector<std::string> gpu_names() {
    std::vector<std::string> names;
    for (const Sheet& sheet : kSheets) {
        if (names.empty() || names.back() != sheet.name)
            names.emplace_back(sheet.name);  // one may have two memories
    }
    return names;
}

}  // namespace argosy::plan
