// Puts the devices of all ranks under load, for long enough that a GPU gets hot and reaches its power limit,
// and looks at the nodes meanwhile and after all measurements.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "cublas/matmul.h"
#include "kernels/table.h"
#include "observe/peak_flops.h"
#include "preflight/read_facts.h"
#include "preflight/speed.h"

namespace argosy::preflight {
namespace {

constexpr double kGpuSeconds = 10, kProcessorSeconds = 0.2;

/// Asks nvidia-smi in the middle of the load: clocks have settled, and if the answer takes a few seconds, the
/// load still lasts.
std::future<GpuAnswer> ask_during_load(double seconds) {
    return std::async(std::launch::async, [seconds] {
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds / 2));
        return query_gpus({});
    });
}

/// The products of this rank. `device` is its GPU; null on a processor.
DeviceLoad multiply(const Speeds& speeds, const SpeedOptions& options, const cuda::Device* device,
                    double seconds) {
    const auto products = observe::sustain_products(options.type, seconds, speeds.device);
    return {.device = device ? device->name : kernels::table().name,
            .library = device ? "cuBLAS " + cublas::version_text() : "Argosy's kernels",
            .bus_id = device ? device->pci_bus_id : "",
            .flops_per_second = products.flops_per_second,
            .hash = fmt::format("{:016x}", products.hash),
            .num_products = products.num_products,
            .num_different = products.num_different};
}

/// Reads the facts that may have changed on the node since they were first read. `uses_gpus`: the job does.
void look_again(NodeFacts& facts, bool uses_gpus) {
    const Sources sources;
    facts.xids = read_xids(sources);
    if (!uses_gpus) return;
    GpuAnswer answer = query_gpus(sources);
    facts.gpus_after = std::move(answer.gpus);
    facts.gpus_problem = std::move(answer.problem);
    facts.gpus_hang = answer.hung;
}

void add_changes(NodeFacts&& changes, NodeFacts& node) {
    node.gpus_under_load = std::move(changes.gpus_under_load);
    node.gpus_after = std::move(changes.gpus_after);
    node.xids = std::move(changes.xids);
    node.gpus_hang = node.gpus_hang || changes.gpus_hang;
    if (node.gpus_problem.empty() && !changes.gpus_problem.empty())
        node.gpus_problem = "after the load, " + changes.gpus_problem;
}

}  // namespace

void measure_loads(const mpi::Comm& world, const bench::ControlChannel& control, const Speeds& speeds,
                   const SpeedOptions& options, Cluster& cluster) {
    const bool on_gpu = !speeds.device.is_cpu(), uses_gpus = !speeds.devices.empty();
    const double seconds = options.sustain_seconds.value_or(on_gpu ? kGpuSeconds : kProcessorSeconds);
    const std::string& node = cluster.ranks[world.rank()].node;
    const bool reports_node = std::ranges::find(cluster.ranks, node, &RankFacts::node)->rank == world.rank();
    RankFacts own;
    NodeFacts changes;
    control.barrier("sustained matrix products");
    if (seconds > 0) {
        std::future<GpuAnswer> answer;
        if (reports_node && uses_gpus) answer = ask_during_load(seconds);
        own.load = multiply(speeds, options, on_gpu ? &speeds.devices[world.rank()] : nullptr, seconds);
        if (answer.valid()) changes.gpus_under_load = answer.get().gpus;
    }
    for (int rank = 0; const std::string& text : control.exchange_texts(pack(own))) {
        cluster.ranks[rank++].load = unpack_rank(text).load;
    }
    if (reports_node) look_again(changes, uses_gpus);
    control.barrier("the exchange of the nodes' changes");
    for (int number = 0;
         const std::string& text : control.exchange_texts(reports_node ? pack(changes) : "")) {
        if (!text.empty()) add_changes(unpack_node(text), cluster.nodes[number++]);
    }
}

}  // namespace argosy::preflight
