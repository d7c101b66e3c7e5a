#include "setup/device.h"

#include <exception>

#include "base/log.h"
#include "comm/gpu_path.h"
#include "cublas/matmul.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "gpu/memory.h"
#include "nccl/communicator.h"
#include "setup/slow_settings.h"

namespace argosy::setup {

c10::Device choose_device(const mpi::Comm& world) {
    if (!comm::all_see_gpus(world)) return c10::kCPU;
    const mpi::Comm::NodePlace place = world.place_on_node();
    const cuda::Device own = cuda::describe_device(place.number % cuda::device_count());
    if (world.rank() == 0) {
        spdlog::info("rank 0 computes on {} ({}); CUDA {}, cuBLASLt {}, NCCL {}", own.name, own.pci_bus_id,
                     cuda::version_text(cuda::runtime_version()), cublas::version_text(),
                     nccl::version_text());
    }
    warn_of_slow_settings(world, place.num_ranks);
    nccl::prepare_for_graphs();
    return gpu::use(own.number);
}

bool computes_on_gpu() {
    try {
        return gpu::memory().has_value();
    } catch (const std::exception&) {
        return true;  // a GPU that cannot be queried
    }
}

}  // namespace argosy::setup
