#include "setup/rank_context.h"

#include "base/log.h"
#include "comm/gpu_path.h"
#include "comm/group.h"
#include "cublas/matmul.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "layout/mesh_shape.h"
#include "nccl/communicator.h"
#include "setup/setup.h"
#include "setup/slow_settings.h"
#include "train/run_limits.h"

namespace argosy::setup {
namespace {

/// COLLECTIVE. Chooses the GPU whose number is the rank's number on its node, modulo the number of GPUs that
/// this rank sees, and makes that GPU current for this thread. Chooses the CPU if no rank sees a GPU. Logs
/// rank 0's GPU, and the environment variables that slow GPUs down. Throws UserError on all ranks if only
/// some ranks see a GPU.
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

c10::Device prepare_process(const mpi::Comm& ranks, const config::JobConfig& config,
                            const Environment& environment) {
    set_determinism(config, environment);
    separate_streams(config.parallelism);
    observe::keep_freed_memory();
    return choose_device(ranks);
}

}  // namespace

RankContext::RankContext(const mpi::Comm& ranks, const config::JobConfig& config,
                         const Environment& environment)
    : device(prepare_process(ranks, config, environment)),
      memory(observe::MemoryMeter::install()),
      tensors(operation_path(config), algorithm_search(config.compile)),
      world(comm::make_communicator(mpi::Comm::world(), "world",
                                    group_options(config.comm, environment, device))),
      control(train::control_group(*world)),
      mesh(layout::resolve(mesh_request(config.parallelism), world->size()), *world) {
    log_idle_compile_keys(config, mesh);
}

}  // namespace argosy::setup
