// Builds the graphs of with_cuda/cudnn_frontend.cpp with cuDNN's own library on a machine without a GPU:
// cuDNN gets the description of a GPU, finds an engine for each graph, and with --build, or for a few graphs,
// compiles its kernels. Nothing runs.
//
// It includes the source, because cuDNN's headers take half a minute to compile.
#include "gpu/with_cuda/cudnn_frontend.cpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "model/model_spec.h"

// LibTorch's, in a library that not every machine has. Graphs for a GPU that is described need no handle.
namespace at::native {
cudnnHandle_t getCudnnHandle() { return nullptr; }
}  // namespace at::native

namespace argosy {
namespace {

namespace fe = cudnn_frontend;

struct Gpu {
    const char* name;
    int capability, multiprocessors;
};
constexpr Gpu kGpus[] = {{"H200", 90, 132}, {"B200", 100, 148}};

/// What cuDNN would ask the driver, in its own form.
std::shared_ptr<fe::DeviceProperties> properties(const Gpu& gpu) {
    const std::string text = fmt::format(
        R"({{"deviceName":"{}","deviceVer":{},"multiProcessorCount":{},"driverVer":13000,"cudaDeviceId":0,)"
        R"("pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"warpSize":32,"regsPerBlock":65536,)"
        R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,)"
        R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
        R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
        R"("reservedSharedMemoryPerBlock":1024,"totalGlobalMem":150000000000,"l2CacheSize":62914560,)"
        R"("smClockRateKHz":1980000,"memClockRateKHz":3201000}})",
        gpu.name, gpu.capability * 10, gpu.multiprocessors);
    const auto made = std::make_shared<fe::DeviceProperties>();
    auto result = made->deserialize(std::vector<uint8_t>(text.begin(), text.end()));
    if (result.is_bad()) throw RunError("cuDNN's description of {}: {}", gpu.name, result.get_message());
    return made;
}

/// Attention of a model in documents, and of a rank among four of a context axis.
std::vector<gpu::CudnnGraph> graphs(const model::ModelSpec& spec, int64_t seq_len, int64_t window) {
    const int64_t q = spec.num_heads * spec.head_dim, kv = spec.num_kv_heads * spec.head_dim;
    std::vector<gpu::CudnnGraph> made;
    for (const bool is_backward : {false, true}) {
        gpu::CudnnGraph graph = {.is_backward = is_backward,
                                 .num_segments = 16,
                                 .num_queries = seq_len,
                                 .num_keys = seq_len,
                                 .max_queries = seq_len,
                                 .max_keys = seq_len,
                                 .heads = spec.num_heads,
                                 .kv_heads = spec.num_kv_heads,
                                 .head_dim = spec.head_dim,
                                 .q_stride = q + 2 * kv,
                                 .k_stride = q + 2 * kv,
                                 .v_stride = q + 2 * kv,
                                 .y_stride = q,
                                 .dy_stride = is_backward ? q : 0};
        if (window > 0) graph.window = window;
        made.push_back(graph);
        graph.num_queries = graph.max_queries = seq_len / 8;
        made.push_back(graph);
        graph.is_causal = false;
        graph.window.reset();
        made.push_back(graph);
    }
    return made;
}

/// cuDNN's workspace, or with `build` false 0.
int64_t bytes_of(const gpu::CudnnGraph& shape, const Gpu& gpu,
                 const std::shared_ptr<fe::DeviceProperties>& properties, bool build) {
    const auto graph = gpu::describe(shape, gpu.capability);
    graph->set_device_properties(properties);
    const auto require = [&](fe::error_t result) {
        if (result.is_bad()) throw RunError("{}: {}", gpu.name, result.get_message());
    };
    require(graph->validate());
    require(graph->build_operation_graph());
    require(graph->create_execution_plans({fe::HeurMode_t::A}));
    require(graph->check_support());
    if (!build) return 0;
    require(graph->build_plans());
    return graph->get_workspace_size();
}

/// The attention of the presets, each once.
std::vector<model::NamedPreset> distinct_presets() {
    std::set<std::tuple<int64_t, int64_t, int64_t>> known;
    std::vector<model::NamedPreset> made;
    for (const auto& one : model::presets()) {
        const auto& spec = one.spec;
        const bool is_for_cudnn = spec.head_dim % 16 == 0 && spec.head_dim <= 128;
        if (is_for_cudnn && known.insert({spec.num_heads, spec.num_kv_heads, spec.head_dim}).second)
            made.push_back(one);
    }
    return made;
}

/// Kernels take seconds to compile, so only those of part of a sequence of one preset are, unless all are
/// wanted.
void run(bool builds_all) {
    int num_graphs = 0, num_built = 0;
    const auto presets = distinct_presets();
    const auto example = std::ranges::find(presets, 128, [](const auto& one) { return one.spec.head_dim; });
    for (const Gpu& gpu : kGpus) {
        const auto given = properties(gpu);
        const auto check = [&](const model::NamedPreset& preset, const gpu::CudnnGraph& graph) {
            const bool is_example = &preset == &*example && graph.is_causal && !graph.window &&
                                    graph.num_queries < graph.num_keys;
            const bool builds = builds_all || is_example;
            const int64_t bytes = bytes_of(graph, gpu, given, builds);
            ++num_graphs;
            num_built += builds;
            if (builds)
                fmt::print("{}, {} {}, {}: workspace of {} MiB\n", gpu.name, preset.name, preset.flavor,
                           graph.is_backward ? "backward" : "forward", bytes >> 20);
        };
        for (const auto& preset : presets) {
            for (const int64_t window : {0, 1024}) {
                for (const auto& graph : graphs(preset.spec, 8192, window)) check(preset, graph);
            }
        }
    }
    fmt::print("{} graphs have an engine, and {} were built\n", num_graphs, num_built);
}

}  // namespace
}  // namespace argosy

int main(int argc, char** argv) {
    try {
        argosy::run(argc > 1 && std::strcmp(argv[1], "--build") == 0);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cudnn_graphs: %s\n", error.what());
        return 1;
    }
}
