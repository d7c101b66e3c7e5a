#include "setup/rank_context.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "comm/gpu_path.h"
#include "comm/group.h"
#include "cublas/matmul.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "layout/mesh_shape.h"
#include "mpi/rank_list.h"
#include "mpi/start_up.h"
#include "nccl/communicator.h"
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

constexpr size_t kMaxLetters = 40;

/// A rank's value of one setting, as ranks send it. `text` has only the first characters of a long value.
struct Value {
    bool is_slow = false;
    char text[kMaxLetters] = {};
};

/// This rank's value of each setting in slow_settings(). `is_slow` is false for harmless values.
std::vector<Value> found_here(int ranks_on_node, int num_ranks) {
    const auto variables = communication_variables();
    const SlowSetting::Ranks ranks = {
        .several_a_node = ranks_on_node > 1,
        .fabric_between_nodes = ranks_on_node < num_ranks && has_active_adapter()};
    std::vector<Value> found;
    for (const SlowSetting& setting : slow_settings()) {
        Value own;
        const std::string* value = setting.harmful_value(variables);
        own.is_slow = value && setting.matters(ranks);
        if (own.is_slow) value->copy(own.text, kMaxLetters - 1);
        found.push_back(own);
    }
    return found;
}

/// The state in a file such as "4: ACTIVE", without the number; empty if the file cannot be read.
std::string state_in(const std::filesystem::path& file) {
    std::string number, state;
    std::ifstream(file) >> number >> state;
    return state;
}

/// "all ranks", "this rank" (a job of one rank), or "rank 1, 3, ...".
std::string describe(const std::vector<int>& ranks, int num_ranks) {
    constexpr size_t kMaxShown = 8;
    if (static_cast<int>(ranks.size()) == num_ranks) return num_ranks == 1 ? "this rank" : "all ranks";
    return "rank " + mpi::listed(ranks, kMaxShown);
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
    log_idle_compile_keys(config, *world);
}

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
        return true;  // the GPU cannot be queried
    }
}

bool has_active_adapter(const std::filesystem::path& adapters) {
    std::error_code ignored;
    for (const auto& adapter : std::filesystem::directory_iterator(adapters, ignored)) {
        for (const auto& port : std::filesystem::directory_iterator(adapter.path() / "ports", ignored)) {
            const std::string link = state_in(port.path() / "phys_state");
            if (state_in(port.path() / "state") == "ACTIVE" && (link.empty() || link == "LinkUp"))
                return true;
        }
    }
    return false;
}

void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node) {
    const std::vector<Value> own = found_here(ranks_on_node, world.size());
    const std::vector<Value> all =
        mpi::all_gather_at_start(world, std::span(own), "settings that make ranks slow");
    if (world.rank() != 0) return;
    for (size_t i = 0; i < own.size(); ++i) {
        std::map<std::string, std::vector<int>> ranks_by_value;
        for (int rank = 0; rank < world.size(); ++rank) {
            const Value& value = all[rank * own.size() + i];
            if (value.is_slow) ranks_by_value[value.text].push_back(rank);
        }
        const SlowSetting& setting = slow_settings()[i];
        for (const auto& [value, ranks] : ranks_by_value) {
            spdlog::warn("{}={} on {}: {}; {}", setting.variable, value, describe(ranks, world.size()),
                         setting.why, setting.remedy);
        }
    }
}

}  // namespace argosy::setup
