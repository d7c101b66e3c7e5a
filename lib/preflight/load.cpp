// Puts the devices of all ranks under load, for long enough that a GPU gets hot and reaches its power limit.
#include <fmt/format.h>

#include <algorithm>

#include "cublas/matmul.h"
#include "kernels/table.h"
#include "observe/peak_flops.h"
#include "preflight/speed.h"

namespace argosy::preflight {
namespace {

constexpr double kGpuSeconds = 10, kProcessorSeconds = 0.2;

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

}  // namespace

void measure_loads(const mpi::Comm& world, const bench::ControlChannel& control, const Speeds& speeds,
                   const SpeedOptions& options, Cluster& cluster) {
    const bool on_gpu = !speeds.device.is_cpu();
    const double seconds = options.sustain_seconds.value_or(on_gpu ? kGpuSeconds : kProcessorSeconds);
    if (seconds == 0) return;
    control.barrier("sustained matrix products");
    RankFacts own;
    own.load = multiply(speeds, options, on_gpu ? &speeds.devices[world.rank()] : nullptr, seconds);
    for (int rank = 0; const std::string& text : control.exchange_texts(pack(own))) {
        cluster.ranks[rank++].load = unpack_rank(text).load;
    }
}

}  // namespace argosy::preflight
