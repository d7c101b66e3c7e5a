#include "eval/device.h"

#include <string_view>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "gpu/device.h"
#include "ops/ops_context.h"

namespace argosy::eval {
namespace {

/// Residual streams get 1/4 of a GPU's free memory; the rest is for the weights of a unit and the activations
/// of a batch.
constexpr int64_t kStreamsShare = 4;

[[noreturn]] void refuse_gpu() {
    if (cuda::runtime_version() == 0) {
        throw UserError(
            "--device gpu, but this build has no CUDA: configure it with -DARGOSY_CUDA=ON (preset cuda), or "
            "use --device cpu");
    }
    throw UserError(
        "--device gpu, but this process sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES and the job's "
        "--gpus options, or use --device cpu");
}

/// Warns of slow settings that affect a single process, so NCCL's settings are left out.
void warn_of_slow_settings() {
    const auto variables = communication_variables();
    for (const SlowSetting& setting : slow_settings()) {
        const std::string* value = setting.harmful_value(variables);
        if (value == nullptr || std::string_view(setting.variable).starts_with("NCCL_")) continue;
        spdlog::warn("{}={}: {}; {}", setting.variable, *value, setting.why, setting.remedy);
    }
}

Device first_gpu() {
    warn_of_slow_settings();
    constexpr int kFirst = 0;
    return {gpu::use(kFirst), cuda::describe_device(kFirst)};
}

/// --device auto fails on a GPU that cannot be used; the message then recommends --device cpu.
Device gpu_where_there_is_one() {
    try {
        return cuda::device_count() == 0 ? Device{} : first_gpu();
    } catch (const RunError& error) {
        throw RunError("{}; or use --device cpu (--device auto uses a GPU if there is one)", error.what());
    }
}

}  // namespace

std::string Device::name() const { return gpu ? fmt::format("cuda:{}", gpu->number) : "cpu"; }

std::string Device::text() const {
    if (!gpu) return fmt::format("the CPU with {} threads", ops::num_threads());
    return fmt::format("{} ({})", gpu->name, gpu->pci_bus_id);
}

Device choose_device(const std::string& wanted) {
    if (wanted == "cpu") return {};
    if (wanted == "auto") return gpu_where_there_is_one();
    ARGOSY_CHECK(wanted == "gpu", "a device called {}", wanted);
    if (cuda::device_count() == 0) refuse_gpu();
    return first_gpu();
}

int64_t stream_bytes(const Device& device, int64_t usual) {
    return device.gpu ? static_cast<int64_t>(cuda::free_memory_bytes()) / kStreamsShare : usual;
}

}  // namespace argosy::eval
