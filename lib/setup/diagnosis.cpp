// The configuration as options of the modules that say why a run is slow.
#include "base/output.h"
#include "setup/setup.h"

namespace argosy::setup {

observe::RankTimesOptions rank_times_options(const config::JobConfig& config, const layout::MeshShape& mesh,
                                             int64_t final_step, std::optional<int64_t> last_own_step,
                                             const Environment& environment) {
    observe::RankTimesOptions options{.dump_folder = config.job.dump_folder,
                                      .log_freq = config.metrics.log_freq,
                                      .final_step = final_step,
                                      .last_own_step = last_own_step,
                                      .host = environment.slurm_node_name,
                                      .mesh = mesh};
    if (options.host.empty()) options.host = host_name();
    // Without balance, causal attention gives the later parts of a sequence more work.
    if (config.parallelism.context_parallel_load_balancer == config::LoadBalancer::None)
        options.unequal_axes.add(layout::Axis::Context);
    return options;
}

}  // namespace argosy::setup
