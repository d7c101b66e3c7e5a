#include "observe/setup.h"

#include "base/log.h"
#include "cuda/device.h"
#include "observe/metrics.h"

namespace argosy::observe {
namespace {

constexpr double kPeakSeconds = 0.3;

bool wants_live_line(config::LiveLine wanted, const Environment& environment) {
    return wanted == config::LiveLine::Always ||
           (wanted == config::LiveLine::Auto && log_is_on_a_terminal(environment));
}

}  // namespace

MetricsOptions metrics_options(const config::JobConfig& config, int64_t final_step,
                               std::optional<int64_t> last_own_step, const Environment& environment) {
    const config::Metrics& metrics = config.metrics;
    MetricsOptions options{.dump_folder = config.job.dump_folder,
                           .log_freq = metrics.log_freq,
                           .final_step = final_step,
                           .live_line = wants_live_line(metrics.live_line, environment),
                           .last_own_step = last_own_step,
                           .columns = environment.columns};
    if (metrics.enable_tensorboard) options.tensorboard_folder = metrics.save_tb_folder;
    return options;
}

JobFigures job_figures(const config::JobConfig& config, const model::ModelSpec& spec, at::ScalarType compute,
                       const comm::Communicator& world) {
    JobFigures figures{world.size(), flops_per_token(spec, config.training.seq_len)};
    const c10::Device device = world.device();
    if (device.is_cuda()) {
        figures.datasheet = datasheet_peak(cuda::describe_device(device.index()).name, compute);
    }
    if (config.metrics.measure_gemm_peak) {
        figures.measured = measure_gemm_peak(compute, kPeakSeconds, device);
        if (world.rank() == 0) spdlog::info("{}", peak_line(figures));
    }
    return figures;
}

}  // namespace argosy::observe
