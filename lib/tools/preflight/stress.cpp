// Puts the devices of all ranks under stress, for long enough that a GPU gets hot and reaches its power
// limit, asks nvidia-smi meanwhile, and reads facts about nodes again after all measurements.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <thread>

#include "cublas/matmul.h"
#include "cuda/device.h"
#include "kernels/table.h"
#include "observe/peak_flops.h"
#include "ops/ops_context.h"
#include "preflight/read_facts.h"
#include "preflight/speed.h"

namespace argosy::preflight {
namespace {

constexpr double kGpuSeconds = 10, kProcessorSeconds = 0.2;

/// Shorter stress may begin after nvidia-smi is asked, or end before it answers.
constexpr double kMinSecondsToAsk = 4;

/// Asks nvidia-smi in the middle of the stress: clocks have settled, and if the answer takes a few seconds,
/// the GPUs still multiply.
std::future<GpuAnswer> ask_during_stress(double seconds, const Sources& sources) {
    return std::async(std::launch::async, [seconds, sources] {
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds / 2));
        return look_at_gpus(sources, Dcgm::NotAsked);
    });
}

/// Takes the answer of ask_during_stress() at the end of the stress. The facts in a later answer are not
/// used, because GPUs at rest have slow links and clocks. But if nvidia-smi hangs or fails, that is always
/// noted.
void take_answer(std::future<GpuAnswer> future, NodeFacts& changes) {
    const bool in_time = future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    GpuAnswer answer = future.get();
    if (in_time) changes.gpus_under_load = std::move(answer.gpus);
    changes.gpus_hang_under_load = answer.hung;
    changes.gpus_problem = std::move(answer.problem);
}

/// The result without its measurements. `device`: the GPU that multiplies; null on a processor.
StressResult describe_device(const cuda::Device* device) {
    if (!device) return {.device = kernels::table().name, .library = "Argosy's kernels"};
    return {
        .device = device->name, .library = "cuBLAS " + cublas::version_text(), .bus_id = device->pci_bus_id};
}

void multiply(c10::Device device, at::ScalarType type, double seconds, StressResult& result) {
    const auto products = observe::sustain_products(type, seconds, device);
    result.seconds = seconds;
    result.flops_per_second = products.flops_per_second;
    // LibTorch's products depend on the processor's model and on the number of threads.
    const bool comparable = !device.is_cpu() || ops::path() != ops::Path::Plain;
    if (comparable) result.hash = fmt::format("{:016x}", products.hash);
    result.num_products = products.num_products;
    result.num_different = products.num_different;
}

/// Whether a rank is the first of its node, which reports the node's facts.
bool reports_node(int rank, const Cluster& cluster) {
    return std::ranges::find(cluster.ranks, cluster.ranks[rank].node, &RankFacts::node)->rank == rank;
}

/// The facts in `cluster` about the node of a rank; null if there are none.
NodeFacts* node_of(int rank, Cluster& cluster) {
    const auto node = std::ranges::find(cluster.nodes, cluster.ranks[rank].node, &NodeFacts::name);
    return node == cluster.nodes.end() ? nullptr : &*node;
}

/// COLLECTIVE: sends the changes that the first rank of each node found to rank 0 (`own`; null on the other
/// ranks), and calls `add(changes, node)` for each node whose facts this rank has in `cluster`.
template <class Add>
void gather_changes(int rank, const bench::ControlChannel& control, const NodeFacts* own, Cluster& cluster,
                    Add add) {
    control.barrier("the exchange of the nodes' changes");
    for (int number = 0; const std::string& text : control.gather_texts(own ? pack(*own) : "")) {
        if (!text.empty()) add(unpack_node(text), cluster.nodes[number++]);
    }
    if (rank == 0 || !own) return;
    if (NodeFacts* node = node_of(rank, cluster)) add(NodeFacts(*own), *node);
}

/// Whether nvidia-smi has hung on the node of this rank, which reports the node.
bool hung_on_node_of(int rank, Cluster& cluster) {
    const NodeFacts* node = node_of(rank, cluster);
    return node && (node->gpus_hang || node->gpus_hang_under_load);
}

}  // namespace

void measure_stress(const mpi::Comm& world, const bench::ControlChannel& control, Meter& meter,
                    const SpeedOptions& options, Cluster& cluster) {
    const std::vector<cuda::Device> devices = meter.devices();
    const bool uses_gpus = !devices.empty();
    const double seconds = options.sustain_seconds.value_or(uses_gpus ? kGpuSeconds : kProcessorSeconds);
    const Sources sources{.gpu_seconds = options.gpu_seconds()};
    const bool reports = reports_node(world.rank(), cluster);
    RankFacts own;
    own.load = describe_device(uses_gpus ? &devices[world.rank()] : nullptr);
    NodeFacts changes;
    control.barrier("sustained matrix products");
    if (seconds > 0) {
        std::future<GpuAnswer> answer;
        const bool asks =
            reports && uses_gpus && seconds >= kMinSecondsToAsk && !hung_on_node_of(world.rank(), cluster);
        if (asks) answer = ask_during_stress(seconds, sources);
        multiply(meter.device(), options.type, seconds, *own.load);
        if (asks) take_answer(std::move(answer), changes);
    }
    for (int rank = 0; const std::string& text : control.gather_texts(pack(own))) {
        cluster.ranks[rank++].load = unpack_rank(text).load;
    }
    gather_changes(world.rank(), control, reports ? &changes : nullptr, cluster,
                   [](NodeFacts&& change, NodeFacts& node) {
                       node.gpus_under_load = std::move(change.gpus_under_load);
                       node.gpus_hang_under_load = change.gpus_hang_under_load;
                       node.add_gpus_problem("under load, ", change.gpus_problem);
                   });
}

void look_again(const mpi::Comm& world, const bench::ControlChannel& control, const Sources& sources,
                Cluster& cluster) {
    const bool reports = reports_node(world.rank(), cluster);
    NodeFacts changes;
    if (reports && !hung_on_node_of(world.rank(), cluster)) {
        GpuAnswer answer = look_at_gpus(sources, Dcgm::Health);
        changes.gpus_after = std::move(answer.gpus);
        changes.gpus_problem = std::move(answer.problem);
        changes.gpus_hang = answer.hung;
        changes.gpus_out_of_time = answer.out_of_time;
        changes.dcgm = std::move(answer.dcgm);
    }
    gather_changes(world.rank(), control, reports ? &changes : nullptr, cluster,
                   [](NodeFacts&& change, NodeFacts& node) {
                       node.gpus_after = std::move(change.gpus_after);
                       node.gpus_hang |= change.gpus_hang;
                       node.gpus_out_of_time |= change.gpus_out_of_time;
                       std::ranges::move(change.dcgm, std::back_inserter(node.dcgm));
                       node.add_gpus_problem("after the load, ", change.gpus_problem);
                   });
}

}  // namespace argosy::preflight
