#include "setup/number_types.h"

#include <string_view>

#include "base/log.h"
#include "cuda/device.h"
#include "kernels/table.h"
#include "model/flops.h"
#include "observe/peak_flops.h"
#include "setup/converters.h"
#include "setup/process.h"

namespace argosy::setup {
namespace {

constexpr double kPeakSeconds = 0.3;
constexpr double kComparisonSeconds = 0.05;  // for each of two types on a processor
constexpr double kNoticed = 1.1;             // a factor between two types that deserves a warning
constexpr int kAmpere = 80;                  // capability of the first tensor cores with bfloat16

bool processor_multiplies_bfloat16() {
    const std::string_view kernels = kernels::table().name;
    return kernels.ends_with("bf16") || kernels == "amx";
}

}  // namespace

std::array<std::string, 3> number_types(const config::Training& training) {
    return {std::string(name_of(training.mixed_precision_param)), std::string(name_of(training.dtype)),
            std::string(name_of(training.mixed_precision_reduce))};
}

std::string number_types_line(const config::Training& training) {
    const auto [compute, master, reduce] = number_types(training);
    return fmt::format("computes in {}, weights in {}, gradients summed over ranks in {}", compute, master,
                       reduce);
}

std::string slow_type_on_gpu(const config::Training& training, const observe::JobFigures& figures,
                             int capability) {
    if (training.mixed_precision_param == config::Precision::Float32 && capability >= kAmpere) {
        const bool known = figures.datasheet.known() && figures.compute_datasheet.known();
        const double usual = figures.datasheet.flops_per_second,
                     own = figures.compute_datasheet.flops_per_second;
        return fmt::format(
            "float32 computes without this GPU's tensor cores{}; set training.mixed_precision_param to "
            "bfloat16",
            known ? fmt::format(": a factor of {:.1f} is lost ({:g} in place of {:g} TFLOP/s)", usual / own,
                                own / 1e12, usual / 1e12)
                  : "");
    }
    if (training.mixed_precision_param != config::Precision::BFloat16 || capability >= kAmpere) return "";
    return fmt::format(
        "this GPU (compute capability {}.{}) has no bfloat16; set training.mixed_precision_param to float32",
        capability / 10, capability % 10);
}

std::string slow_type_on_processor(const config::Training& training) {
    if (training.mixed_precision_param != config::Precision::BFloat16 || processor_multiplies_bfloat16())
        return "";
    const auto rate = [](at::ScalarType type) {
        return observe::measure_gemm_peak(type, kComparisonSeconds).flops_per_second;
    };
    const double factor = rate(at::kFloat) / rate(at::kBFloat16);
    if (factor <= kNoticed) return "";
    return fmt::format(
        "this processor (kernels: {}) has no instructions for bfloat16; products of float32 have {:.1f} "
        "times their speed here; set training.mixed_precision_param to float32",
        kernels::table().name, factor);
}

observe::JobFigures job_figures(const config::JobConfig& config, const train::TrainerOptions& options,
                                const comm::Mesh& mesh) {
    const comm::Communicator& world = mesh.world();
    const config::Training& training = config.training;
    const at::ScalarType compute = scalar_type(training.mixed_precision_param);
    observe::JobFigures figures{.num_devices = world.size(),
                                .flops_per_token = model::flops_per_token(options.spec, training.seq_len),
                                .number_types = number_types(training),
                                .product_casts = product_casts_name(config, options, mesh.shape())};
    const c10::Device device = world.device();
    std::string slow;
    if (computes_on_gpu()) {
        const cuda::Device gpu = cuda::describe_device(cuda::current_device());
        figures.datasheet = observe::datasheet_peak(gpu.name, at::kBFloat16);
        figures.compute_datasheet = observe::datasheet_peak(gpu.name, compute);
        slow = slow_type_on_gpu(training, figures, gpu.capability);
    } else if (world.rank() == 0) {
        slow = slow_type_on_processor(training);
    }
    if (!slow.empty() && world.rank() == 0) spdlog::warn("{}", slow);
    if (config.metrics.measure_gemm_peak) {
        figures.measured = observe::measure_gemm_peak(compute, kPeakSeconds, device);
        if (world.rank() == 0) spdlog::info("{}", observe::peak_line(figures));
    }
    return figures;
}

}  // namespace argosy::setup
