#include "setup/cluster.h"

#include "comm/group.h"
#include "layout/mesh_shape.h"
#include "setup/device.h"
#include "setup/setup.h"
#include "train/run_limits.h"

namespace argosy::setup {
namespace {

c10::Device prepare_process(const mpi::Comm& ranks, const config::JobConfig& config,
                            const Environment& environment) {
    set_determinism(config, environment);
    observe::keep_freed_memory();
    return choose_device(ranks);
}

}  // namespace

Cluster::Cluster(const mpi::Comm& ranks, const config::JobConfig& config, const Environment& environment)
    : device(prepare_process(ranks, config, environment)),
      memory(observe::MemoryMeter::install()),
      tensors(operation_path(config), algorithm_search(config.compile)),
      world(comm::make_communicator(mpi::Comm::world(), "world",
                                    group_options(config.comm, environment, device))),
      control(train::control_group(*world)),
      mesh(layout::resolve(mesh_request(config.parallelism), world->size()), *world) {
    warn_of_idle_keys(config, *world);
}

}  // namespace argosy::setup
