#include "setup/rank_context.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/group.h"
#include "comm/traced.h"
#include "cublas/matmul.h"
#include "cuda/device.h"
#include "gpu/cudnn.h"
#include "gpu/device.h"
#include "layout/mesh_shape.h"
#include "nccl/comm.h"
#include "observe/shortage.h"
#include "setup/converters.h"
#include "setup/options.h"
#include "setup/process.h"
#include "setup/start_record.h"
#include "train/run_limits.h"

namespace argosy::setup {
namespace {

constexpr const char* kDriver = "/dev/nvidiactl";  // exists if the machine has an NVIDIA driver

/// For a run in which no rank sees a GPU. Throws UserError if the job requested GPUs, because training on
/// CPUs is hardly what its user wants. Warns once if the machine has GPUs.
void explain_cpus(const mpi::Comm& world, const Environment& environment) {
    const char* const remedy =
        cuda::runtime_version() == 0
            ? "this build has no CUDA: configure it with -DARGOSY_CUDA=ON (preset cuda)"
            : "check nvidia-smi and CUDA_VISIBLE_DEVICES";
    if (!environment.requested_gpus.empty()) {
        throw UserError(
            "the job requested GPUs ({}), but no rank sees one: {}, or set ARGOSY_DEVICE=cpu to train on "
            "CPUs",
            environment.requested_gpus, remedy);
    }
    if (world.rank() == 0 && std::filesystem::exists(kDriver)) {
        spdlog::warn(
            "this machine has GPUs, but the run trains on CPUs: {}. ARGOSY_DEVICE=cpu ends this warning",
            remedy);
    }
}

/// COLLECTIVE. Chooses the GPU whose number is the rank's number on its node, modulo the number of GPUs that
/// this rank sees, and makes that GPU current for this thread. Chooses the CPU if ARGOSY_DEVICE says so or if
/// no rank sees a GPU. Logs rank 0's GPU. Throws UserError
/// on all ranks if only some ranks see a GPU, or if the job requested GPUs and no rank sees one.
c10::Device choose_device(const mpi::Comm& world, const Environment& environment) {
    const bool wants_cpus = environment.device == "cpu";
    if (!wants_cpus && !environment.device.empty()) {
        throw UserError("ARGOSY_DEVICE={}: set it to cpu, or unset it to train on GPUs", environment.device);
    }
    // Every rank takes part, because the variable may be set on some ranks only.
    if (!comm::all_see_gpus(world, wants_cpus ? 0 : cuda::device_count())) {
        if (!wants_cpus) explain_cpus(world, environment);
        return c10::kCPU;
    }
    const cuda::Device own = cuda::describe_device(world.place_on_node().number % cuda::device_count());
    if (world.rank() == 0) {
        spdlog::info("rank 0 computes on {} ({}); CUDA {}, cuBLASLt {}, NCCL {}", own.name, own.pci_bus_id,
                     cuda::version_text(cuda::runtime_version()), cublas::version_text(),
                     nccl::version_text());
    }
    require_same_libraries(world);
    nccl::prepare_for_graphs();
    return gpu::use(own.number);
}

c10::Device prepare_process(const mpi::Comm& ranks, const config::JobConfig& config,
                            const Environment& environment) {
    if (environment.device == "cpu" && config.comm.gpu_path != config::GpuPathChoice::Auto) {
        throw UserError("comm.gpu_path is set, but ARGOSY_DEVICE=cpu uses no GPU; remove one of the two");
    }
    set_determinism(config, environment);
    gpu::prefer_cudnn(config.compile.masked_attention == config::MaskedAttention::Cudnn);
    return choose_device(ranks, environment);
}

/// COLLECTIVE. The group of all ranks; with [profiling] the timeline gets its operations. A program without
/// a job.dump_folder writes no files after a hang.
std::unique_ptr<comm::Communicator> make_world(const config::JobConfig& config,
                                               const Environment& environment, c10::Device device,
                                               Timeline& timeline) {
    comm::GroupOptions options = group_options(config.comm, environment, device);
    if (!config.job.dump_folder.empty())
        options.flight_folder = std::filesystem::path(config.job.dump_folder) / "flight";
    auto world = comm::make_communicator(mpi::Comm::world(), "world", options);
    if (!config.profiling.enable_profiling) return world;
    return std::make_unique<comm::TracedCommunicator>(std::move(world), timeline);
}

/// A profiler that is attached to this process.
Timeline::SpanSink profiler() {
    if (!cuda::takes_ranges()) return {};
    return {.begin = cuda::begin_range, .end = cuda::end_range};
}

/// NCCL connects ranks in the first step, so its memory is known only then.
void log_connections(const comm::Communicator& world) {
    const comm::Communicator::Connections made = world.connections();
    const auto tensors = gpu::memory();
    if (world.rank() != 0 || made.number == 0 || !tensors) return;
    const int64_t all_bytes = cuda::describe_device(cuda::current_device()).memory_bytes,
                  free_bytes = static_cast<int64_t>(cuda::free_memory_bytes());
    spdlog::info(
        "{} NCCL communicators took {} of GPU memory when they were made; after the first step {} of it are "
        "outside of tensors (CUDA, NCCL, libraries), and {} are free",
        made.number, observe::gibibytes_text(made.bytes),
        observe::gibibytes_text(all_bytes - free_bytes - tensors->reserved_bytes - made.registered_bytes -
                                made.refused_bytes - made.peer_bytes),
        observe::gibibytes_text(free_bytes));
    if (made.peer_bytes > 0)
        spdlog::info("exchanges along a ring have {} of GPU memory to which neighbours write",
                     observe::gibibytes_text(made.peer_bytes));
    if (made.registered_bytes + made.refused_bytes == 0) return;
    spdlog::info(
        "NCCL registered {} of the memory for gathers and reductions; it left {} alone, whose ranks do not "
        "reach each "
        "other's memory",
        observe::gibibytes_text(made.registered_bytes), observe::gibibytes_text(made.refused_bytes));
}

/// Products leave the multiprocessors of channels under way, but keep half of the GPU's.
void leave_channels(ops::OpsContext& tensors, const comm::Communicator& world) {
    const int all = cuda::describe_device(cuda::current_device()).multiprocessors;
    if (world.rank() == 0)
        spdlog::info("products leave the multiprocessors of NCCL's channels under way, of {} in all", all);
    tensors.choose_products_for([&world, all] {
        const int held = world.channels_under_way();
        return held == 0 ? 0 : std::max(all - held, all / 2);
    });
}

}  // namespace

void RankContext::end_start_up(const config::Comm& limits) const {
    world->limit_waits(limits.train_timeout_seconds, "comm.train_timeout_seconds");
    log_connections(*world);
}

RankContext::RankContext(const mpi::Comm& ranks, const config::JobConfig& config,
                         const Environment& environment)
    : device(prepare_process(ranks, config, environment)),
      slow_settings(computes_on_gpu() ? warn_of_slow_settings(ranks) : std::vector<std::string>()),
      memory(observe::MemoryMeter::install()),
      tensors(operation_path(config)),
      timeline(ranks.rank(), profiler()),
      world(make_world(config, environment, device, timeline)),
      control(train::control_group(*world)),
      mesh(layout::resolve(mesh_request(config), world->size()), *world) {
    log_different_kernels(ranks);
    log_idle_keys(config, mesh);
    if (config.comm.products_leave_channels && computes_on_gpu()) leave_channels(tensors, *world);
}

}  // namespace argosy::setup
