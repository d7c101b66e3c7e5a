#include "base/slow_settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

namespace argosy {
namespace {

using Where = SlowSetting::Where;
using Cost = SlowSetting::Cost;

std::string lower(std::string_view value) {
    std::string text(value);
    std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::tolower(letter); });
    return text;
}

/// The number at the start of `value`, after blanks; `otherwise` if there is none.
long leading_integer(std::string_view value, long otherwise) {
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    std::from_chars(value.data(), value.data() + value.size(), otherwise);
    return otherwise;
}

bool is_set(std::string_view value) { return !value.empty(); }
bool is_on(std::string_view value) { return leading_integer(value, 0) != 0; }
bool is_off(std::string_view value) { return is_set(value) && !is_on(value); }
bool is_one(std::string_view value) { return leading_integer(value, 0) == 1; }
bool is_pinned(std::string_view value) { return leading_integer(value, -1) >= 0; }
bool is_socket(std::string_view value) { return lower(value) == "socket"; }
bool prints_much(std::string_view value) { return lower(value) == "info" || lower(value) == "trace"; }
bool keeps_gpus_apart(std::string_view value) { return lower(value) == "loc" || value == "0"; }

/// Any value replaces the setting that this program passes to LibTorch's allocator.
bool keeps_segments_fixed(std::string_view value) {
    return is_set(value) && lower(value).find("expandable_segments:true") == std::string::npos;
}

constexpr const char* kFixedSegments =
    "without expandable segments memory fragments: the allocator releases it and tries again, and memory "
    "runs out earlier";
constexpr const char* kExpand = "add expandable_segments:True to it, or unset it";
constexpr const char* kThroughTheHost = "GPUs of a node communicate only through host memory";
constexpr const char* kByTcp =
    "the adapters stay unused and all traffic goes over TCP, ten or more times slower";
constexpr const char* kForced =
    "a forced choice applies to every size and collective, and stays after its reason is gone";
constexpr const char* kShowGain = "unset it, unless nccl-bench shows a gain on these nodes";

constexpr SlowSetting kSettings[] = {
    {"CUDA_LAUNCH_BLOCKING", is_on, Where::Everywhere, Cost::Ruins,
     "the host waits for each kernel: nothing overlaps, and training is many times slower"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", is_one, Where::Everywhere, Cost::Slows,
     "all streams share one hardware queue: communication waits behind computation"},
    {"NVIDIA_TF32_OVERRIDE", is_set, Where::Everywhere, Cost::Slows,
     "it overrides the precision of all float32 products"},
    {"NCCL_DEBUG", prints_much, Where::Everywhere, Cost::Slows,
     "every rank prints a lot, with TRACE or all of NCCL_DEBUG_SUBSYS at every operation",
     "set it to WARN, or unset it"},
    {"NCCL_P2P_DISABLE", is_on, Where::SeveralRanksANode, Cost::Slows, kThroughTheHost},
    {"NCCL_P2P_LEVEL", keeps_gpus_apart, Where::SeveralRanksANode, Cost::Slows, kThroughTheHost},
    {"NCCL_SHM_DISABLE", is_on, Where::SeveralRanksANode, Cost::Slows, "ranks of a node cannot share memory"},
    {"NCCL_IB_DISABLE", is_on, Where::FabricBetweenNodes, Cost::Ruins, kByTcp},
    {"NCCL_NET", is_socket, Where::FabricBetweenNodes, Cost::Ruins, kByTcp},
    {"NCCL_GRAPH_REGISTER", is_on, Where::SeveralRanksANode, Cost::Ruins,
     "operations in CUDA graphs crash or hang between GPUs with access to each other's memory"},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", is_off, Where::Everywhere, Cost::Ruins,
     "communicators that run at the same time may start in different orders on the ranks, and hang"},
    {"NCCL_ALGO", is_set, Where::Everywhere, Cost::Slows, kForced, kShowGain},
    {"NCCL_PROTO", is_set, Where::Everywhere, Cost::Slows, kForced, kShowGain},
    {"NCCL_IB_GID_INDEX", is_pinned, Where::Everywhere, Cost::Slows,
     "a pinned index often comes from another cluster, and NCCL finds the right one itself"},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", is_set, Where::Everywhere, Cost::Slows,
     "each tensor needs a cudaMalloc that waits for the GPU, many times slower"},
    {"PYTORCH_ALLOC_CONF", keeps_segments_fixed, Where::Everywhere, Cost::Slows, kFixedSegments, kExpand},
    {"PYTORCH_CUDA_ALLOC_CONF", keeps_segments_fixed, Where::Everywhere, Cost::Slows, kFixedSegments,
     kExpand},
    {"MALLOC_CHECK_", is_on, Where::Everywhere, Cost::Slows, "each malloc and free is checked"},
    {"MALLOC_PERTURB_", is_on, Where::Everywhere, Cost::Slows, "each malloc and free fills its memory"},
};

}  // namespace

bool SlowSetting::matters(const Ranks& ranks) const {
    switch (where) {
        case Where::SeveralRanksANode:
            return ranks.several_a_node;
        case Where::FabricBetweenNodes:
            return ranks.fabric_between_nodes;
        case Where::Everywhere:
            break;
    }
    return true;
}

const std::string* SlowSetting::harmful_value(
    const std::vector<std::pair<std::string, std::string>>& variables) const {
    const auto found = std::ranges::find(variables, variable, &std::pair<std::string, std::string>::first);
    return found != variables.end() && holds(found->second) ? &found->second : nullptr;
}

std::span<const SlowSetting> slow_settings() { return kSettings; }

}  // namespace argosy
