#include "setup/process.h"

#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cublas/matmul.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "kernels/table.h"
#include "mpi/agreement.h"
#include "mpi/start_up.h"
#include "nccl/comm.h"
#include "ops/numerics.h"

namespace argosy::setup {
namespace {

constexpr size_t kMaxValueBytes = 40;

/// A rank's value of one setting, as ranks send it. `text` has only the first characters of a long value.
struct SettingValue {
    bool is_slow = false;
    char text[kMaxValueBytes] = {};
};

/// This rank's value of each setting in slow_settings(). `is_slow` is false for harmless values.
std::vector<SettingValue> own_values(int ranks_on_node, int num_ranks) {
    const auto variables = communication_variables();
    const SlowSetting::Ranks ranks = {
        .several_a_node = ranks_on_node > 1,
        .fabric_between_nodes = ranks_on_node < num_ranks && has_active_adapter()};
    std::vector<SettingValue> found;
    for (const SlowSetting& setting : slow_settings()) {
        SettingValue own;
        const std::string* value = setting.harmful_value(variables);
        own.is_slow = value && setting.matters(ranks);
        if (own.is_slow) value->copy(own.text, kMaxValueBytes - 1);
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

/// "all ranks", "this rank" (a job of one rank), or "rank 1, 3".
std::string describe(const std::vector<int>& ranks, int num_ranks) {
    constexpr size_t kMaxShown = 8;
    if (static_cast<int>(ranks.size()) == num_ranks) return num_ranks == 1 ? "this rank" : "all ranks";
    return "rank " + listed(ranks, kMaxShown);
}

}  // namespace

void set_determinism(const config::JobConfig& config, const Environment& environment) {
    if (!config.debug.deterministic) return;
    if (environment.openmp_dynamic) {
        throw UserError(
            "debug.deterministic excludes OMP_DYNAMIC=true, which makes OpenMP use fewer threads on a busy "
            "machine; unset OMP_DYNAMIC");
    }
    spdlog::info("deterministic: results repeat with {} compute threads per rank", ops::make_deterministic());
    if (config.training.max_time) {
        spdlog::info(
            "deterministic: steps repeat, but the number of steps within training.max_time does not");
    }
}

// CUDA has 8 hardware queues for all streams by default. Streams that share a queue wait for each other's
// work. Each NCCL communicator has a stream, and pipelines, rings, and async tensor parallelism beside FSDP
// have more than eight. A message that waits for another rank would then delay an operation that this rank
// waits for, and both might wait for ever.
void separate_streams() { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0); }

bool computes_on_gpu() {
    try {
        return gpu::memory().has_value();
    } catch (const std::exception&) {
        return true;  // the GPU cannot be queried
    }
}

ops::Path operation_path(const config::JobConfig& config) {
    const char* instruction_set = kernels::table().name;  // throws if the processor cannot run it
    if (config.debug.plain_operations) {
        spdlog::info("Argosy's kernels: none, because debug.plain_operations is true");
        return ops::Path::Plain;
    }
    const bool fused = config.compile.enable;
    spdlog::info("Argosy's kernels: {}{}", computes_on_gpu() ? "CUDA" : instruction_set,
                 fused ? "" : ", not fused, because compile.enable is false");
    return fused ? ops::Path::Fused : ops::Path::Separate;
}

void log_different_kernels(const mpi::Comm& world) {
    const bool on_gpu = computes_on_gpu();
    const mpi::Fact own = on_gpu ? mpi::Fact{"GPUs", cuda::describe_device(cuda::current_device()).name}
                                 : mpi::Fact{"kernels", kernels::table().name};
    const auto differences = mpi::find_differences(world, {own});
    if (world.rank() != 0 || differences.empty()) return;
    spdlog::info("{} of ranks differ, and so do the {}. Their results differ by rounding",
                 on_gpu ? "algorithms of products" : "processors", mpi::describe(differences.front()));
}

void require_same_libraries(const mpi::Comm& world) {
    constexpr const char* kRemedy =
        "let all nodes load the libraries of the same LibTorch (LD_LIBRARY_PATH, loaded modules)";
    const std::string cuda = cuda::version_text(cuda::runtime_version());
    mpi::require_same(world, {{"cuBLASLt", cublas::version_text(), "", kRemedy},
                              {"NCCL", nccl::version_text(), "", kRemedy},
                              {"CUDA", cuda, "", kRemedy}});
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

std::vector<std::string> warn_of_slow_settings(const mpi::Comm& world) {
    const std::vector<SettingValue> own = own_values(world.place_on_node().num_ranks, world.size());
    const std::vector<SettingValue> all =
        mpi::all_gather_at_start(world, std::span(own), "settings that make ranks slow");
    std::vector<std::string> warnings;
    if (world.rank() != 0) return warnings;
    for (size_t i = 0; i < own.size(); ++i) {
        std::map<std::string, std::vector<int>> ranks_by_value;
        for (int rank = 0; rank < world.size(); ++rank) {
            const SettingValue& value = all[rank * own.size() + i];
            if (value.is_slow) ranks_by_value[value.text].push_back(rank);
        }
        const SlowSetting& setting = slow_settings()[i];
        for (const auto& [value, ranks] : ranks_by_value) {
            warnings.push_back(fmt::format("{}={} on {}: {}; {}", setting.variable, value,
                                           describe(ranks, world.size()), setting.why, setting.remedy));
            spdlog::warn("{}", warnings.back());
        }
    }
    return warnings;
}

}  // namespace argosy::setup
